"""The console of one process: it hears of finished requests, looks around each second, asks the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar, cast

import msgspec

from penstock import __version__
from penstock.gateway.accounts.price import DOLLAR
from penstock.gateway.console import merge
from penstock.gateway.console.part import Part, part, request_now
from penstock.gateway.console.reports import FOLDER, Reports
from penstock.gateway.console.samples import Samples
from penstock.gateway.dispatch import Member
from penstock.gateway.state import Gateway
from penstock.gateway.store import Database, StoreError, UsageTable
from penstock.gateway.store.usage import UsageRow
from penstock.observe.firing import Alarms, conditions, objectives
from penstock.observe.objectives import Promises
from penstock.observe.record import RequestRecord
from penstock.observe.snapshot import AlertNow, ReportNow, RequestNow, Snapshot, TenantNow
from penstock.observe.window import Sums, Window

logger = logging.getLogger("penstock.console")

FRESH_SECONDS: Final = 0.9  # for which one look around serves everybody who asks
LOOK_SECONDS: Final = 0.25  # between two looks at whether a second is over
JUDGE_SECONDS: Final = 5.0  # between two looks at what should be told
FILE_SECONDS: Final = 2.0  # that anybody waits for a file
BOOKS_SECONDS: Final = 5.0  # for which what was read of the ledger and of the reports is shown
MOST_TENANTS: Final = 50
MOST_STREAMS: Final = 100  # in one process

T = TypeVar("T")
Others = Callable[[], Awaitable[Sequence[bytes]]]
_part: Final = msgspec.msgpack.Decoder(Part)


class Console:
    """`others` gives the parts of the server's other processes. Each judges by all parts: what one of them
    has known to fire is known when that one is gone, or does not answer."""

    def __init__(self, gateway: Gateway, state: Path) -> None:
        self._gateway = gateway
        self._started = time.monotonic()
        self._shown: dict[int, tuple[RequestRecord, RequestNow]] = {}
        self._books = _Books(state)
        self.enabled = gateway.config.console.enabled
        self._begin()
        self._looking = asyncio.Lock()
        self.others: Others = _nobody
        self.streams = 0

    def _begin(self) -> None:
        gateway = self._gateway
        self._window = Window(lambda: gateway.metrics.models, self._judged)
        self._samples = Samples()
        self._alarms = Alarms()
        self._alerts: list[AlertNow] = []
        self._snapshot: tuple[float, int, Snapshot] | None = None  # when, and after how many drains

    def configure(self, enabled: bool) -> None:
        """Look, or do not. What was judged while nobody looked belongs to no second: that begins anew."""
        if enabled and not self.enabled:
            self._begin()
        self.enabled = enabled

    def _judged(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for labels, counter in self._gateway.metrics.families.judged.children():
            yield labels, counter.value

    def _recent(self) -> list[RequestNow]:
        """The last requests as they are shown, each made once."""
        known, self._shown = self._shown, {}
        for record in self._gateway.recent:
            self._shown[id(record)] = known.get(id(record)) or (record, request_now(record))
        return [shown for _, shown in self._shown.values()]

    def finished(self, record: RequestRecord) -> None:
        if self.enabled:
            self._window.finished(record)

    def prefix_hits(self, model: str, member: Member) -> float | None:
        """Of one replica, in the last minute; None: nobody looks, or nothing was looked up."""
        return self._samples.prefix_hits(model, member) if self.enabled else None

    def part(self, *, requests: bool = True) -> Part:
        """What this process knows, without asking anybody; without single `requests` where none is shown."""
        self._gateway.recorder.tell()
        recent = self._recent() if requests else []
        now = part(self._gateway, self._window, self._samples, recent, self._started)
        now.alerts = self._alerts
        return now

    def encoded(self) -> bytes:
        """The same, for another process."""
        return msgspec.msgpack.encode(self.part())

    async def report(self, name: str) -> bytes | None:
        reading = _beside(lambda: self._books.reports.read(name))
        async with asyncio.timeout(FILE_SECONDS):
            return await reading

    async def run(self) -> None:
        """Look around for as long as the process serves."""
        second = judged = 0.0
        while True:
            try:
                now = time.monotonic()
                if self.enabled and int(now) != second:
                    second = int(now)
                    self._gateway.recorder.tell()
                    self._window.tick(self._samples.look(self._gateway.deployments.values()))
                    if now - judged >= JUDGE_SECONDS:
                        judged = now
                        await self._judge(now)
            except Exception:  # whoever looks must not stop looking
                logger.exception("The console could not look around.")
            await asyncio.sleep(LOOK_SECONDS)

    async def _judge(self, now: float) -> None:
        _, whole = await self._whole(requests=False)
        found = conditions(merge.watched(whole), self._promises(), merge.gpu_memory(whole))
        self._alerts = self._alarms.judge(found, now)

    def _promises(self) -> Promises:
        return self._gateway.metrics.promises

    async def _whole(self, *, requests: bool = True) -> tuple[int, Part]:
        """How many processes there are, and what they know together."""
        parts = [self.part(requests=requests)]
        for page in await self.others():
            try:
                parts.append(_part.decode(page))
            except msgspec.MsgspecError:  # one that was ended in the middle of it
                continue
        return len(parts), merge.merged(parts)

    async def snapshot(self) -> Snapshot:
        """The state now; one look around serves all who ask at about the same time."""
        async with self._looking:
            known, drains = self._snapshot, self._gateway.drains.changes
            if known is None or time.monotonic() - known[0] >= FRESH_SECONDS or known[1] != drains:
                known = self._snapshot = (time.monotonic(), drains, await self._look())
            return known[2]

    async def _look(self) -> Snapshot:
        processes, whole = await self._whole()
        spenders, reports = await self._books.read()
        gateway, config = self._gateway, self._gateway.config
        at, now = time.time(), time.monotonic()
        wall = at - now  # what is shown of the past stays in order, wherever the clock was set to
        uptime = now - whole.started
        window = max(1.0, min(merge.WINDOW, uptime))
        sums = whole.sums[merge.WINDOW]
        every = merge.everything(sums)
        tiers = gateway.orchestrator.tiers if gateway.orchestrator is not None else []
        return Snapshot(
            at=at,
            version=__version__,
            uptime=uptime,
            window=window,
            draining=whole.draining,
            processes=processes,
            traffic=merge.traffic(every, window),
            models=[merge.model_now(model, sums.get(model.name, Sums()), window) for model in whole.models],
            tenants=self._tenants(spenders, whole.tenants),
            recent=[
                msgspec.structs.replace(request, at=wall + request.at)
                for request in whole.recent[: config.console.recent]
            ],
            causes=every.causes,
            objectives=objectives(merge.watched(whole), self._promises()),
            alerts=[msgspec.structs.replace(alert, since=wall + alert.since) for alert in whole.alerts],
            routing=None
            if whole.routing is None
            else merge.routing_now(whole.routing, {tier.name: tier.deployment.name for tier in tiers}),
            gpus=whole.gpus,
            reports=reports,
            history=merge.points(whole.history, wall),
        )

    def _tenants(self, spenders: Sequence[UsageRow], running: dict[str, int]) -> list[TenantNow]:
        """Those who spend most, those who have something running, and those who are configured."""
        budgets = {tenant.name: tenant.monthly_budget for tenant in self._gateway.config.tenants}
        found = {
            row.tenant: TenantNow(
                name=row.tenant,
                requests=row.tally.requests,
                tokens=row.tally.prompt + row.tally.completion,
                dollars=row.tally.cost / DOLLAR,
            )
            for row in spenders
        }
        for name in (*running, *budgets):
            if name not in found and len(found) < 2 * MOST_TENANTS:
                found[name] = TenantNow(name=name)
        for name, tenant in found.items():
            tenant.running, tenant.budget = running.get(name, 0), budgets.get(name)
        return list(found.values())


class _Books:
    """What is read from files, a few times a minute and beside the event loop."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.reports = Reports(state / FOLDER)
        self._table: UsageTable | None = None
        self._read = float("-inf")
        self._reading: asyncio.Future[tuple[list[UsageRow], list[ReportNow]]] | None = None
        self._failing = False
        self._known: tuple[list[UsageRow], list[ReportNow]] = ([], [])

    async def read(self) -> tuple[list[UsageRow], list[ReportNow]]:
        """What is known at the latest after a while: a folder that does not answer holds up nobody."""
        now = time.monotonic()
        if self._reading is None and now - self._read >= BOOKS_SECONDS:
            self._read = now
            self._reading = _beside(self._look)
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=FILE_SECONDS if now - self._read < 1.0 else 0.0)
            if self._reading.done():
                reading, self._reading = self._reading, None
                self._known = reading.result()
        return self._known

    def _look(self) -> tuple[list[UsageRow], list[ReportNow]]:
        spenders, _ = self._known
        try:
            # A connection of its own: whoever is served must not wait for who looks on.
            if self._table is None:
                self._table = UsageTable(Database(self._state))
            spenders = self._table.spenders(time.strftime("%Y-%m", time.gmtime()), MOST_TENANTS)
            self._failing = False
        except StoreError as error:
            if not self._failing:
                logger.warning("What tenants have used cannot be shown. %s", error)
            self._failing = True
        return spenders, self.reports.list()


def _beside(work: Callable[[], T]) -> asyncio.Future[T]:
    """Work that may never be done, in a thread that does not keep the process from its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast(T, result))

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="books", daemon=True).start()
    return done


async def _nobody() -> Sequence[bytes]:
    return ()
