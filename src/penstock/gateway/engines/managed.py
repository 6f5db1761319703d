"""An engine that this process starts, watches and starts again."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.engine.config import EngineConfig
from penstock.engine.process import DeathCause, EngineClient
from penstock.errors import EngineUnavailableError, PenstockError
from penstock.gateway.engines.fleet import note_deaths
from penstock.gateway.engines.kept import KeptEngine
from penstock.gateway.engines.restarts import Death, RestartPolicy, Restarts
from penstock.gateway.health import HealthLimits

logger = logging.getLogger("penstock.engines")


def managed_engine(
    name: str,
    config: EngineConfig,
    *,
    listen: Path | None = None,
    limits: HealthLimits | None = None,
    policy: RestartPolicy | None = None,
    on_death: Callable[[Death], None] | None = None,
) -> KeptEngine:
    """One whose process is ours. With `listen` it can be shared: other processes attach to that path."""
    return KeptEngine(name, _Starting(name, config, listen, policy or RestartPolicy()), limits, on_death)


class _Starting:
    def __init__(self, name: str, config: EngineConfig, listen: Path | None, policy: RestartPolicy) -> None:
        self._name = name
        self._config = config
        self._listen = listen
        self._policy = policy
        self._restarts = Restarts(policy)
        self.deaths: Counter[str] = Counter()

    def died(self, cause: DeathCause) -> None:
        self.deaths[cause] += 1
        if self._listen is not None:
            try:
                note_deaths(self._listen, self.deaths)
            except (OSError, msgspec.MsgspecError) as error:  # starting it again matters more
                logger.warning(
                    "Engine %s: other processes cannot be told of its death. %s", self._name, error
                )

    @property
    def kill_after(self) -> float | None:
        return self._policy.kill_after

    async def first(self) -> EngineClient:
        seconds = self._policy.start_within
        try:
            async with asyncio.timeout(seconds):
                return await EngineClient.start(self._config, self._listen)
        except TimeoutError:
            text = f"Engine {self._name} was not loaded within {seconds:g} seconds."
            raise EngineUnavailableError(text) from None

    async def again(self, error: PenstockError, ran: float) -> EngineClient:
        """Nothing is final: a file may come back, memory may become free."""
        while True:
            pause = self._restarts.pause(ran, random.random())
            logger.warning(
                "Engine %s: %s Starting it again in %.1f s, attempt %d.",
                self._name, error, pause, self._restarts.attempts,
            )  # fmt: skip
            await asyncio.sleep(pause)
            began = time.monotonic()
            try:
                client = await self.first()
            except PenstockError as failure:
                error, ran = failure, 0.0
            except Exception as failure:  # no process, file or memory to be had: whatever it is, it may pass
                error, ran = EngineUnavailableError(f"Its process cannot be started ({failure})."), 0.0
            else:
                took = time.monotonic() - began
                logger.warning("Engine %s runs again, after %.1f s (pid %s).", self._name, took, client.pid)
                return client
