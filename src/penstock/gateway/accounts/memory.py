"""Standings of a server with one worker: in this process."""

from __future__ import annotations

from penstock.gateway.accounts.calendar import Calendar
from penstock.gateway.accounts.hold import Hold
from penstock.gateway.accounts.keeping import Spent, admit, end, reprice
from penstock.gateway.accounts.limits import Limits, Refusal, Standing

_HERE = ""  # the one worker there is


class MemoryKeeper:
    def __init__(self, calendar: Calendar, spent: Spent) -> None:
        self._calendar = calendar
        self._spent = spent
        self._standings: dict[str, Standing] = {}

    def reserve(self, hold: Hold) -> Refusal | None:
        standing = self._standings.get(hold.tenant)
        if standing is None:
            standing = self._standings[hold.tenant] = Standing(at=hold.at)
        return admit(standing, hold, _HERE, self._calendar, self._spent)

    def reprice(self, hold: Hold, cost: int, at: int) -> Refusal | None:
        return reprice(self._standings[hold.tenant], hold, _HERE, cost, self._calendar)

    def settle(self, hold: Hold, limits: Limits, tokens: int, cost: int, at: int) -> None:
        standing = self._standings.get(hold.tenant)
        if standing is not None:
            end(standing, hold, _HERE, limits, tokens, cost, at)

    def forget_spending(self, tenant: str) -> None:
        """It has been told to those who keep the books of all."""
        if (standing := self._standings.get(tenant)) is not None:
            standing.spent = 0

    def tick(self, at: int) -> None:
        pass

    def close(self) -> None:
        pass
