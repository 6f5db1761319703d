"""Every request's way through its tenant's account: reserve before, settle after, exactly once."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from time import time
from typing import Final, Literal

from penstock.config import TenantConfig
from penstock.gateway.accounts.calendar import Calendar
from penstock.gateway.accounts.hold import Header, Hold, Want
from penstock.gateway.accounts.keeping import Keeper, microseconds
from penstock.gateway.accounts.keys import Caller
from penstock.gateway.accounts.ledger import Ledger
from penstock.gateway.accounts.limits import SECOND, Limits, Refusal
from penstock.gateway.accounts.memory import MemoryKeeper
from penstock.gateway.accounts.price import FREE, Price, countable
from penstock.gateway.accounts.shared import SharedKeeper
from penstock.gateway.store import Database, StandingFile, StoreError, UsageTable
from penstock.protocol.errors import RATE_LIMIT, HTTPError, retry
from penstock.protocol.shapes import UsageCount

logger = logging.getLogger("penstock.gateway")

Outcome = Literal["ok", "aborted", "failed", "refused"]

_NOTHING: Final = UsageCount()


class Accounts:
    """The event loop's, but for `flush`, which may run in a thread. `now` is monotonic seconds.

    Money is counted in picodollars. What is used is billed to the day, and the month's budget, in which its
    request was admitted.
    """

    def __init__(
        self, ledger: Ledger, keeper: Keeper, calendar: Calendar, database: Database | None = None
    ) -> None:
        self.ledger = ledger
        self._keeper = keeper
        self._calendar = calendar
        self._database = database
        self._limits: dict[str, tuple[TenantConfig, Limits]] = {}  # by account
        self._lost: deque[Hold] = deque()

    @classmethod
    def open(cls, folder: Path | None, *, workers: int = 1, wall: Callable[[], float] = time) -> Accounts:
        """Totals in `folder`, or in memory without one; there too the limits that several workers share."""
        calendar = Calendar(wall)
        if folder is None:
            ledger = Ledger()
            return cls(ledger, MemoryKeeper(calendar, ledger.spent), calendar)
        database = Database(folder)
        ledger = Ledger(UsageTable(database))
        keeper: Keeper
        if workers > 1:
            keeper = SharedKeeper(lambda: StandingFile(folder), calendar, ledger.spent, workers)
        else:
            keeper = MemoryKeeper(calendar, ledger.spent, ledger.written_elsewhere)
        return cls(ledger, keeper, calendar, database)

    def reserve(
        self,
        caller: Caller,
        tenant: TenantConfig,
        model: str,
        price: Price | None,
        prompt_tokens: int,
        output_tokens: int,
        now: float,
    ) -> Hold:
        """Hold what the request may use at most, or raise its 429. `tenant`: the limits of the caller's."""
        if self._lost:
            self._settle_lost(now)
        limits = self._limits_of(caller.tenant, tenant)
        hold = Hold(
            caller.tenant,
            model,
            price or FREE,
            limits,
            countable(prompt_tokens),
            countable(output_tokens),
            microseconds(now),
            self._lost,
        )
        if limits.none:
            hold.day = self._calendar.today()
        elif (why := self._keeper.reserve(hold)) is not None:
            self.ledger.add(caller.tenant, model, self._calendar.today(), "refused")
            raise _refused(caller.tenant, why, hold.headers())
        hold.settled = False
        return hold

    def reserve_again(
        self,
        hold: Hold,
        model: str,
        price: Price | None,
        prompt_tokens: int,
        output_tokens: int,
        now: float,
    ) -> None:
        """Another model will answer, at its own price and length. Raises 429 if that is beyond the limits."""
        wanted = Want(price or FREE, countable(prompt_tokens), countable(output_tokens))
        if not hold.limits.none:
            why = self._keeper.reserve_again(hold, wanted, microseconds(now))
            if why is not None:
                raise _refused(hold.tenant, why)
        hold.model = model
        hold.price = wanted.price

    def settle(self, hold: Hold, usage: UsageCount, outcome: Outcome, now: float, *, saved: int = 0) -> int:
        """Bill what was delivered, once: a hold that is settled already stays so. Returns the picodollars."""
        if hold.settled:
            return 0
        hold.settled = True
        prompt, completion = countable(usage.prompt), countable(usage.completion)
        cached = min(countable(usage.cached), prompt)
        # Who got nothing pays nothing, not even for the request.
        cost = hold.price.cost(prompt, cached, completion) if prompt or completion or outcome == "ok" else 0
        _, limits = self._limits[hold.tenant]
        if not limits.none or not hold.limits.none:
            self._keeper.settle(hold, limits, prompt + completion, cost, microseconds(now))
        self.ledger.add(
            hold.tenant, hold.model, hold.day, outcome, prompt, cached, completion, countable(saved), cost
        )
        return cost

    def due(self, now: float) -> bool:
        """Do what was put off, and say whether it is time to `flush`. For a timer of about 50 ms."""
        if self._lost:
            self._settle_lost(now)
        self._keeper.tick(microseconds(now))
        return self.ledger.due(now)

    def flush(self) -> bool:
        """Write the ledger; False: it could not be, and is kept. May run in a thread."""
        return self.ledger.flush()

    def close(self, now: float) -> bool:
        """Settle and write what is left; whether all of it is written."""
        self._settle_lost(now)
        self._keeper.tick(microseconds(now))
        written = self.flush()
        self._keeper.close()
        if self._database is not None:
            if not written and not self._database.in_place:
                written = self._write_anew(self._database.path.parent)
            self._database.close()
        return written

    def _write_anew(self, folder: Path) -> bool:
        """The state is gone: what this process knows of usage begins another."""
        try:
            with closing(Database(folder)) as database:
                return self.ledger.flush(UsageTable(database))
        except StoreError as error:
            logger.error("%s", error)
            return False

    def _limits_of(self, account: str, tenant: TenantConfig) -> Limits:
        known = self._limits.get(account)
        if known is None or known[0] is not tenant:
            known = self._limits[account] = (tenant, Limits.of(tenant))
        return known[1]

    def _settle_lost(self, now: float) -> None:
        """Requests whose handler went away without a word: they end as failures, and hold nothing more."""
        while self._lost:
            self.settle(self._lost.popleft(), _NOTHING, "failed", now)


def _refused(tenant: str, why: Refusal, standing: Sequence[Header] = ()) -> HTTPError:
    if why.wait is None:
        headers = {"x-should-retry": "false"}
        advice = "it can never pass: make it smaller (max_tokens), or have the limit raised"
    else:
        headers = retry(why.wait / SECOND)
        advice = f"try again in {headers['Retry-After']} seconds"
    headers |= {name.decode(): value.decode() for name, value in standing}
    return HTTPError(
        429,
        f"{why.message} (tenant {tenant!r}); {advice}.",
        code=why.code,
        type=RATE_LIMIT,
        headers=headers,
    )
