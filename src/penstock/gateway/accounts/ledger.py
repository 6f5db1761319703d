"""What was used, gathered in memory and written in groups: one transaction for many requests.

`add` is the event loop's; `flush` may run in a thread beside it. While the file cannot be written, totals
grow where they are (one for each tenant, model and day) and nothing is lost or counted twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

from penstock.gateway.store import StoreError, Tally, UsageTable
from penstock.gateway.store.flushing import Flusher
from penstock.gateway.store.usage import Account
from penstock.protocol.errors import UNAVAILABLE, UNAVAILABLE_RETRY_SECONDS, HTTPError, retry

logger = logging.getLogger("penstock.gateway")

FLUSH_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 1.0


class Ledger:
    """Without a table the totals stay in memory."""

    def __init__(self, table: UsageTable | None = None) -> None:
        self._table = table
        self._lock = threading.Lock()  # guards `_pending`
        self._flusher = Flusher("Usage")
        self._pending: dict[Account, Tally] = {}
        self._written = 0.0  # seconds, monotonic: when `due` last said yes
        self._version = -1

    def tally(self, tenant: str, model: str, day: str) -> Tally:
        """The pending total of an account. For `add` only, under the lock."""
        account = (tenant, model, day)
        found = self._pending.get(account)
        if found is None:
            found = self._pending[account] = Tally()
        return found

    def add(
        self,
        tenant: str,
        model: str,
        day: str,
        outcome: str,
        prompt: int = 0,
        cached: int = 0,
        completion: int = 0,
        saved: int = 0,
        cost: int = 0,
    ) -> None:
        """One request, however it ended: ok, aborted, failed or refused."""
        with self._lock:
            tally = self.tally(tenant, model, day)
            setattr(tally, outcome, getattr(tally, outcome) + 1)
            tally.requests += 1
            tally.prompt += prompt
            tally.cached += cached
            tally.completion += completion
            tally.saved += saved
            tally.cost += cost

    def spent(self, tenant: str, month: str) -> int:
        """Picodollars of a tenant's month: what is written and what is about to be."""
        with self._flusher.lock, self._lock:
            pending = sum(
                tally.cost
                for (whose, _, day), tally in self._pending.items()
                if whose == tenant and day.startswith(month)
            )
            try:
                return pending + (self._table.month_cost(tenant, month) if self._table is not None else 0)
            except StoreError as error:
                # To guess would be to give a budget away.
                logger.error("What tenant %r has spent is not known. %s", tenant, error)
                raise HTTPError(
                    503,
                    "Budgets cannot be read at present; try again in a few seconds.",
                    code="ledger_unavailable",
                    type=UNAVAILABLE,
                    headers=retry(UNAVAILABLE_RETRY_SECONDS),
                ) from None

    def written_elsewhere(self) -> bool:
        """Whether another process has written since this was last asked. Does not wait for a flush."""
        if self._table is None or not self._flusher.lock.acquire(blocking=False):
            return False
        try:
            version = self._table.version()
        except StoreError:
            return False  # flushes fail as well then, and say so
        finally:
            self._flusher.lock.release()
        changed = version != self._version
        self._version = version
        return changed

    def due(self, now: float) -> bool:
        """Whether it is time to flush."""
        wait = RETRY_SECONDS if self._flusher.failing else FLUSH_SECONDS
        if self._table is None or not self._pending or now - self._written < wait:
            return False
        self._written = now
        return True

    def flush(self, table: UsageTable | None = None) -> bool:
        """Write what has gathered, to this table if one is given. False: it is kept, to be tried again."""
        table = table or self._table
        if table is None:
            return True
        return self._flusher.flush(table.add, self._take, self._keep)

    def _take(self) -> dict[Account, Tally]:
        with self._lock:
            batch, self._pending = self._pending, {}
        return batch

    def _keep(self, batch: Mapping[Account, Tally]) -> None:
        with self._lock:
            for account, tally in batch.items():
                self.tally(*account).add(tally)
