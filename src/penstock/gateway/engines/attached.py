"""An engine that another process keeps running: the same to use, and found again when it comes back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from penstock.engine.config import EngineInfo
from penstock.engine.process import EngineClient
from penstock.engine.request import EngineStats
from penstock.errors import EngineUnavailableError
from penstock.gateway.engines.restarts import Death
from penstock.gateway.engines.watch import Watch, mourn
from penstock.gateway.health import Health, HealthLimits

FIRST_RETRY, MAX_RETRY = 0.05, 1.0  # seconds between two attempts to attach; doubling
ATTACH_WITHIN = 5.0  # seconds; an engine that hangs takes connections and says nothing

logger = logging.getLogger("penstock.engines")


class AttachedEngine:
    """Uses the engine that listens on `path`, whichever process that is at the moment."""

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        limits: HealthLimits | None = None,
        on_death: Callable[[Death], None] | None = None,
    ) -> None:
        self.name = name
        self.generation = 0
        self._path = path
        self._limits = limits or HealthLimits()
        self._on_death = on_death
        self._client: EngineClient | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.health = Health(self._limits, time.monotonic())

    async def start(self, within: float = 60.0) -> None:
        """Attach, trying for so many seconds. Raises EngineUnavailableError."""
        try:
            async with asyncio.timeout(within):
                await self._attach()
        except TimeoutError:
            text = f"Engine {self.name} could not be reached within {within:g} seconds."
            raise EngineUnavailableError(text) from None
        self._keeper = asyncio.create_task(self._keep(), name=f"stay with engine {self.name}")

    @property
    def client(self) -> EngineClient | None:
        """What answers now; None while there is no engine."""
        return self._client if self._client is not None and self._client.alive else None

    @property
    def info(self) -> EngineInfo:
        assert self._client is not None, "start() returns only when it is attached"
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

    async def shutdown(self, drain_seconds: float = 0.0) -> None:
        """Let go of it; the engine goes on for the others."""
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
            error = await watch.until_gone()
            self.health.died(str(error), time.monotonic())
            await self._client.kill()
            mourn(self._on_death, self.name, self.generation, self._client, error)
            logger.warning("Engine %s: %s Waiting for it to come back.", self.name, error)
            await self._attach()

    async def _attach(self) -> None:
        pause = FIRST_RETRY
        while True:
            try:
                async with asyncio.timeout(ATTACH_WITHIN):
                    self._client = await EngineClient.attach(self._path)
                break
            except (EngineUnavailableError, TimeoutError):
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_RETRY)
        self.generation += 1
        now = time.monotonic()
        # An engine listens once it has generated a token, and greets in the loop that computes.
        self.health.revived(now)
        self.health.token(now)
