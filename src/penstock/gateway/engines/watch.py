"""Watching one engine's process: what its client sees becomes its health."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from penstock.engine.process import EngineClient
from penstock.errors import PenstockError
from penstock.gateway.engines.restarts import Death
from penstock.gateway.health import Health

TICK = 0.5  # seconds between two looks
LATE = 1.0  # seconds; a look this much later than meant is the watcher's own standstill

logger = logging.getLogger("penstock.engines")


def mourn(
    on_death: Callable[[Death], None] | None,
    name: str,
    generation: int,
    client: EngineClient,
    error: PenstockError,
) -> None:
    """Tell whoever wants to know what was lost. Whatever comes of it, the engine is started again."""
    if on_death is None:
        return
    death = Death(
        engine=name,
        generation=generation,
        reason=str(error),
        cause=client.cause,
        requests=client.lost,
        at=time.monotonic(),
    )
    try:
        on_death(death)
    except Exception:
        logger.exception("Nobody could be told of the death of engine %s.", name)


class Watch:
    """Tells `health` of an engine's beats, steps, failed steps and probes, until the engine is gone.

    It reads the account that the engine gives of itself twice a second: streams cost nothing more.
    """

    def __init__(self, name: str, client: EngineClient, health: Health, probe_timeout: float) -> None:
        self._name = name
        self._client = client
        self._health = health
        self._probe_timeout = probe_timeout
        self._stats = client.stats
        self._token = client.last_token
        self._stuck_for = 0.0  # seconds that it was seen to be unhealthy while nothing came through
        self._probe: asyncio.Task[None] | None = None

    async def until_gone(self, kill_after: float | None = None) -> PenstockError:
        """Look on until the engine fails, and say why. Stuck for `kill_after` seconds, it is ended."""
        failing = asyncio.create_task(self._client.failed())
        looked = time.monotonic()
        try:
            while not (await asyncio.wait((failing,), timeout=TICK))[0]:
                now = time.monotonic()
                late = now - looked - TICK
                if late > LATE:
                    self._health.excuse(late)
                self._look(now)
                looked = now
                if kill_after is not None and self._stuck_for >= kill_after:
                    reason = self._health.reason(now)
                    logger.error("Engine %s is stuck (%s); ending it by force.", self._name, reason)
                    await self._client.kill()
            return failing.result()
        finally:
            failing.cancel()
            if self._probe is not None:
                self._probe.cancel()

    def _look(self, now: float) -> None:
        client, health = self._client, self._health
        before, stats = self._stats, client.stats
        health.beat(client.last_beat)
        # A step is work that came through, also where a long prompt gives no token for a while. The first
        # account has no other before it: what it counts happened earlier.
        known = before.steps > 0
        worked = (known and stats.steps > before.steps) or client.last_token > self._token
        if worked:
            health.token(now)
        if known and stats.failed_steps > before.failed_steps:
            health.fault("a step failed on its device", now)
        self._stats, self._token = stats, client.last_token
        if worked or health.state(now) != "unhealthy":
            self._stuck_for = 0.0
        else:
            self._stuck_for += TICK
        if health.wants_probe(now):
            health.probing(now)
            self._probe = asyncio.create_task(self._prove())

    async def _prove(self) -> None:
        ok = await self._client.probe(self._probe_timeout)
        self._health.probed(ok, time.monotonic())
