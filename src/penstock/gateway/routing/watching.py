"""What is done about an answer of a tier while it is given: a second look before it goes out."""

from __future__ import annotations

from penstock.aio.decision import Attempt
from penstock.gateway.accounts.price import DOLLAR
from penstock.gateway.routing.router import Route
from penstock.gateway.second_look import Looked


class EscalatedError(Exception):
    """An answer did not pass the second look and was taken back: a better tier is to be asked."""

    def __init__(self, route: Route, tier: str, looked: Looked) -> None:
        super().__init__(f"The answer of {tier} did not pass the second look.")
        assert looked.look is not None, "it was looked at"
        self._route = route
        self._kept = looked.kept
        self.spent = looked.spent  # by that answer
        self._attempt = Attempt(
            tier=tier,
            cost=round((looked.cost or 0.0) * DOLLAR),
            output_tokens=looked.spent.completion,
            why="; ".join(looked.look.reasons),
        )
        route.decision.cascade.append(self._attempt)

    @property
    def kept(self) -> bool:
        """Whether the answer is still there."""
        return self._kept is not None

    async def give(self) -> None:
        """Send it after all: then it is no answer that was paid for in vain."""
        assert self._kept is not None, "there is something to give"
        self._route.decision.cascade.remove(self._attempt)
        await self._kept.send()
