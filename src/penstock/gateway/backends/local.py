"""The engine that this process started and stops: one model in a child process."""

from __future__ import annotations

import asyncio
import time

from penstock.engine.config import EngineConfig, EngineInfo
from penstock.engine.process import EngineClient, EventStream
from penstock.engine.request import EngineStats, Request
from penstock.errors import PenstockError

MAX_HEARTBEAT_AGE = 5.0  # seconds
# An idle engine proves itself with a token, but readiness checks must not keep it busy.
PROBE_INTERVAL = 10.0  # seconds


class LocalBackend:
    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._probed_at = time.monotonic()  # starting an engine ends with a generated token
        self._probe: asyncio.Task[bool] | None = None
        self._probe_failed = False

    @classmethod
    async def start(cls, config: EngineConfig) -> LocalBackend:
        return cls(await EngineClient.start(config))

    @property
    def info(self) -> EngineInfo:
        return self._client.info

    @property
    def stats(self) -> EngineStats:
        return self._client.stats

    @property
    def failure(self) -> PenstockError | None:
        return self._client.failure

    def submit(self, request: Request) -> EventStream:
        return self._client.submit(request)

    def cancel(self, request_id: str, index: int | None = None) -> None:
        self._client.cancel(request_id, index)

    async def not_ready(self) -> str | None:
        if self.failure is not None:
            return str(self.failure)
        age = self._client.heartbeat_age
        if age > MAX_HEARTBEAT_AGE:
            return f"The engine has shown no progress for {age:.1f} seconds."
        stats = self._client.stats
        busy = stats.running + stats.waiting > 0
        # A busy engine shows by its heartbeat that it works: a probe would only wait in its queue.
        if busy:
            return None
        since_probe = time.monotonic() - self._probed_at
        if min(self._client.token_age, since_probe) >= PROBE_INTERVAL or self._probe is not None:
            await self._prove()
        if self._probe_failed and self._client.token_age >= PROBE_INTERVAL:
            return "The engine did not generate a token when asked for one."
        return None

    async def failed(self) -> PenstockError:
        return await self._client.failed()

    async def shutdown(self, drain_seconds: float) -> None:
        await self._client.shutdown(drain_seconds)

    async def _prove(self) -> None:
        """Generate one token. Readiness checks that come together share one probe."""
        if self._probe is None:
            self._probed_at = time.monotonic()
            self._probe = asyncio.create_task(self._client.probe())
            self._probe.add_done_callback(self._probed)
        # A check that gives up waiting must not take the probe from the others.
        await asyncio.shield(self._probe)

    def _probed(self, probe: asyncio.Task[bool]) -> None:
        self._probe = None
        self._probe_failed = probe.cancelled() or not probe.result()
