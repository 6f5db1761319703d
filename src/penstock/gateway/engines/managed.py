"""An engine that this process starts, watches and starts again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path

from penstock.engine.config import EngineConfig, EngineInfo
from penstock.engine.process import EngineClient
from penstock.engine.request import EngineStats
from penstock.errors import EngineUnavailableError, PenstockError
from penstock.gateway.engines.restarts import Death, RestartPolicy, Restarts
from penstock.gateway.engines.watch import Watch, mourn
from penstock.gateway.health import Health, HealthLimits

logger = logging.getLogger("penstock.engines")


class ManagedEngine:
    """Keeps one engine running. `client` is what answers now, if anything does; `generation` counts them.

    With `listen` the engine can be shared: other processes use it as an `AttachedEngine`.
    """

    def __init__(
        self,
        name: str,
        config: EngineConfig,
        *,
        listen: Path | None = None,
        limits: HealthLimits | None = None,
        policy: RestartPolicy | None = None,
        on_death: Callable[[Death], None] | None = None,
    ) -> None:
        self.name = name
        self.generation = 0
        self._config = config
        self._listen = listen
        self._limits = limits or HealthLimits()
        self._policy = policy or RestartPolicy()
        self._restarts = Restarts(self._policy)
        self._on_death = on_death
        self._client: EngineClient | None = None
        self._adopted = 0.0  # when the current client came; seconds, monotonic
        self._keeper: asyncio.Task[None] | None = None
        self.health = Health(self._limits, time.monotonic())

    async def start(self) -> None:
        """Return once it has generated a token. What keeps it from its first start is raised, not retried."""
        self._adopt(await self._open())
        self._keeper = asyncio.create_task(self._keep(), name=f"keep engine {self.name}")

    @property
    def client(self) -> EngineClient | None:
        """What answers now; None while there is no engine."""
        return self._client if self._client is not None and self._client.alive else None

    @property
    def info(self) -> EngineInfo:
        assert self._client is not None, "start() returns only when the engine is loaded"
        return self._client.info

    @property
    def stats(self) -> EngineStats:
        """The engine's latest account of itself, the last one of an engine that is gone."""
        return EngineStats() if self._client is None else self._client.stats

    @property
    def pid(self) -> int | None:
        client = self.client
        return None if client is None else client.pid

    @property
    def restarts(self) -> int:
        return max(0, self.generation - 1)

    async def shutdown(self, drain_seconds: float) -> None:
        """End the engine, once what it has accepted is finished or this much time is over."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        if self._client is not None:
            await self._client.shutdown(drain_seconds)

    async def _keep(self) -> None:
        while True:
            assert self._client is not None
            watch = Watch(self.name, self._client, self.health, self._limits.probe_timeout)
            error = await watch.until_gone(self._policy.kill_after)
            now = time.monotonic()
            self.health.died(str(error), now)
            await self._client.kill()
            mourn(self._on_death, self.name, self.generation, self._client, error)
            await self._start_again(error, ran=now - self._adopted)

    async def _start_again(self, error: PenstockError, ran: float) -> None:
        """Try until an engine runs. Nothing is final: a file may come back, memory may become free."""
        while True:
            pause = self._restarts.pause(ran, random.random())
            logger.warning(
                "Engine %s: %s Starting it again in %.1f s, attempt %d.",
                self.name, error, pause, self._restarts.attempts,
            )  # fmt: skip
            await asyncio.sleep(pause)
            began = time.monotonic()
            try:
                self._adopt(await self._open())
            except PenstockError as failure:
                error, ran = failure, 0.0
            except Exception as failure:  # no process, file or memory to be had: whatever it is, it may pass
                error, ran = EngineUnavailableError(f"Its process cannot be started ({failure})."), 0.0
            else:
                took = time.monotonic() - began
                logger.warning("Engine %s runs again, after %.1f s (pid %s).", self.name, took, self.pid)
                return

    async def _open(self) -> EngineClient:
        seconds = self._policy.start_within
        try:
            async with asyncio.timeout(seconds):
                return await EngineClient.start(self._config, self._listen)
        except TimeoutError:
            text = f"Engine {self.name} was not loaded within {seconds:g} seconds."
            raise EngineUnavailableError(text) from None

    def _adopt(self, client: EngineClient) -> None:
        self._client = client
        self._adopted = time.monotonic()
        self.generation += 1
        # A start ends with a generated token.
        self.health.revived(self._adopted)
        self.health.token(self._adopted)
