"""One front process: HTTP on a socket that is bound already, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from penstock.config import Settings
from penstock.config.changes import changes, needs_restart
from penstock.errors import PenstockError
from penstock.gateway.accounts import Accounts, KeyRing
from penstock.gateway.app import FrontDoor
from penstock.gateway.assembly import Assembly
from penstock.gateway.cache.cache import ResponseCache
from penstock.gateway.cache.opening import open_cache, open_semantic
from penstock.gateway.console import Console
from penstock.gateway.drains import Drains
from penstock.gateway.engines import KeptEngine, start_engines
from penstock.gateway.http import LimitedHTTPProtocol
from penstock.gateway.inside import ASK_SECONDS, InsideAnswer, ask_inside
from penstock.gateway.listening import BACKLOG, check_bind
from penstock.gateway.routing.orchestrator import Orchestrator
from penstock.gateway.state import Gateway
from penstock.gateway.store import Database, KeyTable, state_folder
from penstock.gateway.store.database import FILE_NAME
from penstock.observe.metrics import Metrics
from penstock.observe.open_tracing import open_tracing

if TYPE_CHECKING:
    from penstock.observe.tracing import Tracing

logger = logging.getLogger("penstock.gateway")

KEEP_ALIVE_SECONDS = 75  # longer than the load balancers' usual 60, so that they hang up first
FLUSH_SECONDS = 5  # for the last bytes of answers that are already complete
LATE_SECONDS = 1.0  # for the request of who connected before the door was closed
TICK_SECONDS = 0.02


def open_keys(settings: Settings, *, locked: bool = False) -> KeyRing:
    """The keys of the settings and of the store. `locked`: it had some, whatever it says now."""
    table = KeyTable(Database(state_folder(settings.state_dir)))
    return KeyRing(settings.api_keys, table, locked=locked)


def known_keys(settings: Settings) -> KeyRing:
    """The same for who only looks: a store that is not there yet has no keys, and is not made."""
    if (state_folder(settings.state_dir) / FILE_NAME).exists():
        return open_keys(settings)
    return KeyRing(settings.api_keys)


class Front:
    """The front door of one process, from its accounts to its socket."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        assembly: Assembly,
        keys: KeyRing,
        shared: Path,
        *,
        leads: bool = True,
    ) -> None:
        """`shared`: the folder of all processes of this server, of which the one that `leads` decides what is
        everybody's business."""
        self._settings = settings
        self._assembly = assembly
        folder = state_folder(settings.state_dir)
        self._accounts = Accounts.open(folder, workers=settings.workers)
        self._orchestrator = Orchestrator.open(
            folder, metrics, self._ask_inside, share=settings.workers, leads=leads
        )
        self._orchestrator.prepare(settings.gateway)
        self.gateway = Gateway(
            settings.gateway,
            assembly.deployments,
            keys,
            self._accounts,
            metrics,
            assembly.registry,
            Drains(shared),
            self._orchestrator,
            self._open_cache(settings),
        )
        self._orchestrator.configure(settings.gateway, self.gateway.deployments)
        self._use_cache(self.gateway.cache)
        self.console = self.gateway.console = Console(self.gateway, folder)
        self.gateway.recorder.add(self.console)
        self._use_tracing(open_tracing(settings.gateway.tracing, tally=self.gateway.traces))

    def _use_cache(self, cache: ResponseCache | None) -> None:
        self.gateway.cache = cache
        if cache is not None:
            cache.count = self.gateway.count_cached

    def _use_tracing(self, tracing: Tracing | None) -> None:
        if self.gateway.tracing is not None:
            self.gateway.recorder.remove(self.gateway.tracing)
        self.gateway.tracing = tracing
        if tracing is not None:
            tracing.start()
            self.gateway.recorder.add(tracing)

    async def _ask_inside(
        self, operation: str, body: Mapping[str, Any], *, tier: str, seconds: float = ASK_SECONDS
    ) -> InsideAnswer:
        return await ask_inside(self.gateway, operation, body, tier=tier, seconds=seconds)

    def _open_cache(self, settings: Settings) -> ResponseCache | None:
        config = settings.gateway.cache
        semantic = open_semantic(config) if config.semantic else None
        folder = state_folder(settings.state_dir)
        return open_cache(config, folder, share=settings.workers, semantic=semantic)

    async def reload(self, settings: Settings) -> None:
        """Serve what these settings say, or raise ConfigError and go on as before."""
        check_bind(settings, self.gateway.keys)
        # Whatever can be refused comes before the first change.
        await asyncio.to_thread(self._orchestrator.prepare, settings.gateway)
        tracing = before = self.gateway.tracing
        if settings.gateway.tracing != self._settings.gateway.tracing:
            tracing = open_tracing(settings.gateway.tracing, tally=self.gateway.traces)
        cache, old = self.gateway.cache, self.gateway.cache
        if settings.gateway.cache != self._settings.gateway.cache:
            cache = await asyncio.to_thread(self._open_cache, settings)
        try:
            config = await self._assembly.apply(settings)
        except BaseException:
            if cache is not None and cache is not old:
                await cache.close()
            raise
        self.gateway.configure(config, self._assembly.deployments)
        self._orchestrator.configure(config, self.gateway.deployments)
        self._use_cache(cache)
        if old is not None and old is not cache:
            await old.close()
        if tracing is not before:
            self._use_tracing(tracing)
            if before is not None:
                await asyncio.to_thread(before.close)
        self.gateway.keys.configure(settings.api_keys)
        self._settings = settings

    async def serve(
        self,
        listener: socket.socket,
        signals: Signals,
        ready: Callable[[], None],
        draining: Callable[[], None],
    ) -> None:
        """Answer until a signal comes, then finish what runs: for a while, or until a second signal."""
        server = _Server(
            uvicorn.Config(
                FrontDoor(self.gateway),
                http=LimitedHTTPProtocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=FLUSH_SECONDS,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        keeping = asyncio.create_task(self.gateway.keep_time())
        learning = asyncio.create_task(self._orchestrator.run())
        looking = asyncio.create_task(self.console.run())
        ready()
        try:
            if await signals.first(serving, keeping):
                self.gateway.refuse_new()
                draining()
                learning.cancel()  # what it asks is nobody's to wait for
                await self._drain(signals)
            self.gateway.abort_all("The server was stopped before this was complete.")
        finally:
            server.should_exit = True
            server.force_exit = signals.count > 1
            await serving
            for task in (keeping, learning, looking):
                task.cancel()
            await asyncio.gather(keeping, learning, looking, return_exceptions=True)
            if self.gateway.cache is not None:
                await self.gateway.cache.close()
            await self._assembly.close()
            self.gateway.recorder.tell()
            self.gateway.slow.tell_rest()
            if self.gateway.tracing is not None:
                await asyncio.to_thread(self.gateway.tracing.close)
            self._orchestrator.flush()
            if not self._accounts.close(time.monotonic()):
                logger.error("The last usage could not be written to the ledger.")

    async def _drain(self, signals: Signals) -> None:
        """Finish what runs while /health still answers; a second signal or the limit ends it."""
        finishing = asyncio.create_task(self.gateway.idle())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_seconds):
                await signals.first(finishing)
        finishing.cancel()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: uvicorn would close the door at once, and /health with it."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Hear those out who were let in and have not said anything yet: to close on them is to reset them,
        and with several processes the last one that ends is still taking connections."""
        for server in self.servers:
            server.close()
        patience = 0 if self.force_exit else round(LATE_SECONDS / TICK_SECONDS)
        for _ in range(patience):
            if not any(map(_unheard, self.server_state.connections)):
                break
            await asyncio.sleep(TICK_SECONDS)
        await super().shutdown(sockets)


def _unheard(connection: object) -> bool:
    return isinstance(connection, LimitedHTTPProtocol) and connection.cycle is None


class Signals:
    """Counts the requests to stop: the first one drains, the second one leaves at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.count = 0
        self._came = asyncio.Event()
        self._loop = loop
        self._reloading: set[asyncio.Task[None]] = set()
        self._hung_up = False  # before anybody could do anything about it
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._note)
        # Left alone it would end the process, engines half loaded and all.
        loop.add_signal_handler(signal.SIGHUP, self._note_hangup)

    def on_hangup(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do this at SIGHUP, by which servers are told to read their configuration again; at once if it has
        come before."""

        async def acting() -> None:
            await act()

        def begin() -> None:
            task = self._loop.create_task(acting())
            self._reloading.add(task)
            task.add_done_callback(self._reloading.discard)

        self._loop.add_signal_handler(signal.SIGHUP, begin)
        if self._hung_up:
            begin()

    def _note_hangup(self) -> None:
        self._hung_up = True

    def _note(self) -> None:
        self.count += 1
        self._came.set()

    async def first(self, *others: asyncio.Task[object] | asyncio.Task[None]) -> bool:
        """Wait for a further signal or for one of `others` to be done; whether it was the signal."""
        self._came.clear()
        came = asyncio.create_task(self._came.wait())
        try:
            await asyncio.wait((came, *others), return_when=asyncio.FIRST_COMPLETED)
            return came.done()
        finally:
            came.cancel()


async def started(engines: Sequence[KeptEngine], signals: Signals) -> bool:
    """Start them all, or raise what keeps one from it; False: a signal to stop came first."""
    loading = asyncio.create_task(start_engines(engines))
    if await signals.first(loading):
        loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)
    if loading.cancelled():
        return False
    loading.result()
    return True


def reload_on_hangup(
    signals: Signals,
    settings: Settings,
    reread: Callable[[], Settings],
    apply: Callable[[Settings], Awaitable[None]],
) -> None:
    """Read the configuration again at SIGHUP. One that is wrong is refused, and the old one kept."""
    current = settings
    one_at_a_time = asyncio.Lock()

    async def reload() -> None:
        nonlocal current
        async with one_at_a_time:
            try:
                fresh = await asyncio.to_thread(reread)
                # The name of the one model of flat options does not change while it is served.
                if not fresh.gateway.models and not fresh.served_model_names:
                    fresh = dataclasses.replace(fresh, served_model_names=settings.served_model_names)
                # What is bound or started stays as it is, for processes that are started later too.
                kept = {name: getattr(settings, name) for name in needs_restart(settings, fresh)}
                fresh = dataclasses.replace(fresh, **kept)
                await apply(fresh)
            except PenstockError as error:
                logger.error("The configuration was not changed: %s", error)
                return
            logger.info("Read the configuration again: %s.", changes(current.gateway, fresh.gateway))
            if kept:
                logger.warning("These take a new start to change: %s.", ", ".join(kept))
            current = fresh

    signals.on_hangup(reload)
