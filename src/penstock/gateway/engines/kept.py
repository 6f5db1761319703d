"""An engine that is there as long as anybody sees to it: used, watched, and come by again when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.engine.config import EngineInfo
from penstock.engine.process import DeathCause, EngineClient
from penstock.engine.request import EngineStats
from penstock.errors import PenstockError
from penstock.gateway.engines.restarts import Death
from penstock.gateway.engines.watch import Watch, mourn
from penstock.gateway.health import Health, HealthLimits


class Way(Protocol):
    """How an engine is come by: by starting its process, or by attaching to somebody else's."""

    @property
    def deaths(self) -> Mapping[str, int]:
        """Of its engines so far, by cause."""

    def died(self, cause: DeathCause) -> None:
        """One of them has."""

    @property
    def kill_after(self) -> float | None:
        """Seconds; stuck for so long, it is ended by force. None: that is not for us to do."""

    async def first(self) -> EngineClient:
        """An engine that has generated a token. What keeps it from that is raised."""

    async def again(self, error: PenstockError, ran: float) -> EngineClient:
        """Another one, after the last was lost to `error` and had been there for `ran` seconds. Never fails:
        it tries until there is one."""


class KeptEngine:
    """`client` is what answers now, if anything does; `generation` counts them."""

    def __init__(
        self,
        name: str,
        way: Way,
        limits: HealthLimits | None = None,
        on_death: Callable[[Death], None] | None = None,
    ) -> None:
        self.name = name
        self.generation = 0
        self._way = way
        self._limits = limits or HealthLimits()
        self._on_death = on_death
        self._client: EngineClient | None = None
        self._adopted = 0.0  # when the current client came; seconds, monotonic
        self._keeper: asyncio.Task[None] | None = None
        self.health = Health(self._limits, time.monotonic())

    async def start(self) -> None:
        """Return once it can be used. What keeps it from its first start is raised, not retried."""
        self._adopt(await self._way.first())
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

    @property
    def deaths(self) -> Mapping[str, int]:
        """How often it ended without being asked to, by cause."""
        return self._way.deaths

    async def shutdown(self, drain_seconds: float = 0.0) -> None:
        """Its owner ends it, once what it has accepted is finished or this much time is over; others let go
        of it."""
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
            error = await watch.until_gone(self._way.kill_after)
            now = time.monotonic()
            self.health.died(str(error), now)
            await self._client.kill()
            self._way.died(self._client.cause)
            mourn(self._on_death, self.name, self.generation, self._client, error)
            self._adopt(await self._way.again(error, now - self._adopted))

    def _adopt(self, client: EngineClient) -> None:
        self._client = client
        self._adopted = time.monotonic()
        self.generation += 1
        # A start ends with a generated token; an engine listens after that, and greets in its own loop.
        self.health.revived(self._adopted)
        self.health.token(self._adopted)
