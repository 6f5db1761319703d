"""The orchestrator as it runs: requests are routed, what came of them is booked, and it learns from that."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime

from penstock.aio.books import book
from penstock.aio.lengths import OutputLengths
from penstock.config import CascadeConfig, GatewayConfig, TenantConfig
from penstock.gateway.accounts.accounts import Outcome
from penstock.gateway.accounts.price import DOLLAR
from penstock.gateway.deployment import Deployment
from penstock.gateway.exchange import Exchange
from penstock.gateway.routing.router import Quality, Route, Router
from penstock.gateway.routing.tier import Tier
from penstock.gateway.routing.watching import EscalatedError
from penstock.gateway.second_look import with_second_look
from penstock.gateway.store.routes import RouteLedger
from penstock.protocol.shapes import UsageCount


class Orchestrator:
    """One for a process; `configure` gives it another ladder while it goes on knowing what it has learned."""

    def __init__(self, quality: Quality, ledger: RouteLedger) -> None:
        self._quality = quality
        self._ledger = ledger
        self._lengths = OutputLengths()
        self._router: Router | None = None
        self._cpu_hour = 0  # picodollars
        self._cascade = CascadeConfig()

    def configure(self, config: GatewayConfig, deployments: Mapping[str, Deployment]) -> None:
        """Raises ConfigError for a ladder that cannot be weighed; then everything stays as it was."""
        self._router = Router(config, deployments, self._quality, self._lengths) if config.tiers else None
        self._cpu_hour = round(config.routing.cpu_price * DOLLAR)
        self._cascade = config.routing.cascade

    @property
    def tiers(self) -> list[Tier]:
        """Cheapest first; none where nothing is to be chosen."""
        return [] if self._router is None else self._router.steps

    def above(self, tier: Tier, other: Tier) -> bool:
        """Whether the one stands higher on the ladder."""
        return self.tiers.index(tier) > self.tiers.index(other)

    async def watched(
        self, exchange: Exchange, tier: Tier | None, go: Callable[[], Awaitable[None]], *, second_look: bool
    ) -> None:
        """Have a tier answer through `go`. `second_look`: there is a better one to ask if this one does not
        do; then EscalatedError says so."""
        route = exchange.route
        assert route is not None, "it was routed"
        assert tier is not None, "to a tier"
        if not (second_look and self._cascade.enabled):
            await go()
            return
        usual = self._lengths.expected(tier.name, route.rating.region)
        looked = await with_second_look(exchange, go, self._cascade, route.query.ask, usual=usual)
        if looked.escalate:
            raise EscalatedError(route, tier.name, looked)

    async def route(self, exchange: Exchange, tenant: TenantConfig, allowed: Collection[Deployment]) -> Route:
        assert self._router is not None, "only a ladder makes auto a model"
        return await self._router.route(exchange, tenant, allowed)

    def finished(self, exchange: Exchange, outcome: Outcome, usage: UsageCount, cost: int) -> None:
        """Book a routed request that has ended, however it did; `cost` in picodollars."""
        route = exchange.route
        assert route is not None, "it was routed"
        if route.cached:
            return  # nobody was asked: there is nothing that routing could have saved
        decision = route.decision
        decision.outcome = outcome
        decision.answered = exchange.tier if exchange.started and usage.completion else ""
        decision.output_tokens = usage.completion
        decision.cost = cost
        decision.latency_seconds = time.monotonic() - exchange.arrived
        if decision.answered:
            decision.prompt_tokens, decision.cached_tokens = usage.prompt, usage.cached
        if outcome == "ok" and decision.answered:
            self._lengths.add(
                decision.answered, decision.region, usage.completion // exchange.inquiry.choices
            )
        day = datetime.fromtimestamp(decision.at, UTC).strftime("%Y-%m-%d")
        self._ledger.add(book(decision, day, self._cpu_hour))
