"""Standings of a server with one worker: in this process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from penstock.gateway.accounts.calendar import Calendar
from penstock.gateway.accounts.hold import Hold, Want
from penstock.gateway.accounts.keeping import Spent, admit, end, readmit
from penstock.gateway.accounts.limits import SECOND, Limits, Refusal, Standing
from penstock.protocol.errors import HTTPError

_HERE = ""  # the one worker there is


class MemoryKeeper:
    def __init__(
        self, calendar: Calendar, spent: Spent, written_elsewhere: Callable[[], bool] = lambda: False
    ) -> None:
        self._calendar = calendar
        self._spent = spent
        self._written_elsewhere = written_elsewhere
        self._looked = 0  # microseconds, monotonic
        self._standings: dict[str, Standing] = {}

    def reserve(self, hold: Hold) -> Refusal | None:
        standing = self._standings.get(hold.tenant)
        if standing is None:
            standing = self._standings[hold.tenant] = Standing(at=hold.at)
        return admit(standing, hold, _HERE, self._calendar, self._spent)

    def reserve_again(self, hold: Hold, wanted: Want, at: int) -> Refusal | None:
        return readmit(self._standings[hold.tenant], hold, _HERE, wanted, self._calendar, at)

    def settle(self, hold: Hold, limits: Limits, tokens: int, cost: int, at: int) -> None:
        standing = self._standings.get(hold.tenant)
        if standing is not None:
            end(standing, hold, _HERE, limits, tokens, cost, at)

    def forget_spending(self, tenant: str) -> None:
        """It has been told to those who keep the books of all."""
        if (standing := self._standings.get(tenant)) is not None:
            standing.spent = 0

    def tick(self, at: int) -> None:
        """See, within a second, what servers beside this one have spent of the same budgets."""
        if at - self._looked < SECOND:
            return
        self._looked = at
        if self._written_elsewhere():
            for tenant, standing in self._standings.items():
                if standing.month:
                    # What is unreadable now will be read again when it changes next.
                    with suppress(HTTPError):
                        standing.spent = self._spent(tenant, standing.month)

    def close(self) -> None:
        pass
