"""The process above the front processes: it owns the address and the engines, and answers nobody itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.config import Settings
from penstock.errors import ConfigError, EngineUnavailableError
from penstock.gateway.accounts import KeyRing
from penstock.gateway.banner import Banner
from penstock.gateway.changing import check_change
from penstock.gateway.engine_plan import EnginePlan, managed
from penstock.gateway.engines import RestartPolicy, Restarts
from penstock.gateway.front import Signals, reload_on_hangup, started
from penstock.gateway.listening import check_bind, listen, url_of
from penstock.gateway.workers.messages import (
    BEAT_SECONDS,
    Begin,
    Failed,
    FromWorker,
    Reload,
    from_worker,
    line,
)
from penstock.gateway.workers.scraping import Scraper
from penstock.observe.open_tracing import open_tracing

logger = logging.getLogger("penstock.workers")

START_SECONDS = 120.0  # for a front process to answer
EXIT_SECONDS = 10.0  # beyond the time to drain, before it is ended by force
NOTED_BEATS = 7  # that were missed, a second and a half each: somebody should look
FATAL_BEATS = 20  # it is replaced
MAX_LINE = 16 << 20  # bytes; a configuration has to fit


async def supervise(
    settings: Settings,
    plans: list[EnginePlan],
    folder: Path,
    listener: socket.socket,
    banner: Banner,
    reread: Callable[[], Settings],
    keys: KeyRing,
) -> bool:
    """Serve with several processes until told to stop; whether it ended in order."""
    signals = Signals(asyncio.get_running_loop())
    engines = [managed(plan, settings.gateway.health, folder) for plan in plans]
    banner.loading([plan.files.name for plan in plans])
    if not await started(engines, signals):
        return True
    listen(settings, listener)
    crew = [Worker(number, settings, folder, listener, keys) for number in range(settings.workers)]
    current = settings
    scraper = Scraper(folder, settings.workers, lambda: current.gateway.metrics.vllm_names)
    offering = contextlib.AsyncExitStack()
    try:
        await offering.enter_async_context(scraper.offer())
        await asyncio.gather(*(worker.start() for worker in crew))
        banner.ready_together(url_of(listener), settings, locked=keys.locked)

        async def apply(fresh: Settings) -> None:
            nonlocal current
            # Here first: what one process refused and another took, or a later one was started with,
            # would part them.
            check_bind(fresh, keys)
            check_change(current, fresh)
            open_tracing(fresh.gateway.tracing)
            current = fresh
            for worker in crew:
                worker.reload(fresh)

        reload_on_hangup(signals, settings, reread, apply)
        await signals.first()
        banner.draining(settings.drain_seconds)
        ending = asyncio.create_task(_stop_all(crew))
        while not ending.done():
            if await signals.first(ending):
                for worker in crew:
                    worker.signal(signal.SIGTERM)
        return signals.count < 2
    finally:
        await asyncio.gather(*(worker.kill() for worker in crew))
        await offering.aclose()
        await asyncio.gather(*(engine.shutdown(0.0) for engine in engines))


async def _stop_all(crew: list[Worker]) -> None:
    await asyncio.gather(*(worker.stop() for worker in crew))


class Worker:
    """One front process, started again when it ends without being told to."""

    def __init__(
        self, number: int, settings: Settings, folder: Path, listener: socket.socket, keys: KeyRing
    ) -> None:
        self._number = number
        self._settings = settings
        self._folder = folder
        self._listener = listener
        self._keys = keys
        self._restarts = Restarts(RestartPolicy())
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        """Returns when it answers; raises what keeps it from that."""
        await self._spawn()
        self._keeper = asyncio.create_task(self._keep())

    def reload(self, settings: Settings) -> None:
        """Now, or when it is started again."""
        self._settings = settings
        with contextlib.suppress(RuntimeError):  # it is not there, which its keeper sees to
            self._tell(Reload(settings))

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def stop(self) -> None:
        """Have it finish what it has, and end."""
        self._stopping = True
        self.signal(signal.SIGTERM)
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), self._settings.drain_seconds + EXIT_SECONDS)

    async def kill(self) -> None:
        self._stopping = True
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        self.signal(signal.SIGKILL)
        if self._process is not None:
            await self._process.wait()

    async def _keep(self) -> None:
        while True:
            assert self._process is not None
            began = time.monotonic()
            await self._watch(self._process)
            code = await self._process.wait()
            if self._stopping:
                return
            pause = self._restarts.pause(time.monotonic() - began, random.random())
            again = f"starting it again in {pause:.1f} s"
            logger.error("Front process %d ended (exit code %d); %s.", self._number, code, again)
            await asyncio.sleep(pause)
            while True:
                try:
                    await self._spawn()
                    break
                except (EngineUnavailableError, ConfigError) as error:
                    pause = self._restarts.pause(0.0, random.random())
                    logger.error("Front process %d: %s Again in %.1f s.", self._number, error, pause)
                    await asyncio.sleep(pause)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Returns when it ends, or has been ended because it was silent for too long."""
        assert process.stdout is not None
        # Beats that were missed are counted, not seconds: when this process was stopped itself, for however
        # long, nobody is to blame.
        missed = 0
        while True:
            try:
                async with asyncio.timeout(BEAT_SECONDS * 1.5):
                    if not await process.stdout.readline():
                        return
                if missed >= NOTED_BEATS:
                    logger.warning("Front process %d goes on.", self._number)
                missed = 0
            except TimeoutError:
                missed += 1
            # Looked at here, so that a process that is started after the state was lost is told of keys.
            _ = self._keys.locked
            if missed == NOTED_BEATS:
                logger.error("Front process %d does nothing; it may be stopped or stuck.", self._number)
            if missed >= FATAL_BEATS and not self._stopping:
                logger.error("Front process %d still does nothing, and is ended.", self._number)
                self.signal(signal.SIGKILL)
                return

    async def _spawn(self) -> None:
        descriptor = self._listener.fileno()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "penstock.gateway.workers.worker", str(descriptor),
            pass_fds=[descriptor], stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            limit=MAX_LINE, start_new_session=True,  # a Ctrl-C is for the supervisor alone
        )  # fmt: skip
        self._tell(Begin(self._number, self._settings, str(self._folder), self._keys.had_keys))
        answer = await self._answer()
        if isinstance(answer, Failed):
            await self._process.wait()
            raise ConfigError(answer.message)

    async def _answer(self) -> FromWorker:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                said = await self._process.stdout.readline()
            answer: FromWorker = from_worker.decode(said)
            return answer
        except (TimeoutError, msgspec.MsgspecError):
            self.signal(signal.SIGKILL)
            code = await self._process.wait()
            raise EngineUnavailableError(f"A front process did not start (exit code {code}).") from None

    def _tell(self, message: Begin | Reload) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(line(message))
