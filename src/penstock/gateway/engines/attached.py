"""An engine that another process keeps running: the same to use, and found again when it comes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.engine.process import DeathCause, EngineClient
from penstock.errors import EngineUnavailableError, PenstockError
from penstock.gateway.engines.fleet import noted_deaths
from penstock.gateway.engines.kept import KeptEngine
from penstock.gateway.engines.restarts import Death
from penstock.gateway.health import HealthLimits

FIRST_RETRY, MAX_RETRY = 0.05, 1.0  # seconds between two attempts to attach; doubling
ATTACH_WITHIN = 5.0  # seconds; an engine that hangs takes connections and says nothing
START_WITHIN = 60.0  # seconds for the first time

logger = logging.getLogger("penstock.engines")


def attached_engine(
    name: str,
    path: Path,
    *,
    limits: HealthLimits | None = None,
    within: float = START_WITHIN,
    on_death: Callable[[Death], None] | None = None,
) -> KeptEngine:
    """The one that listens on `path`, whichever process that is at the moment. It is tried for `within`
    seconds at the start, and from then on for ever."""
    return KeptEngine(name, _Attaching(name, path, within), limits, on_death)


class _Attaching:
    kill_after = None  # it is its owner's

    def __init__(self, name: str, path: Path, within: float) -> None:
        self._name = name
        self._path = path
        self._within = within

    @property
    def deaths(self) -> Mapping[str, int]:
        return noted_deaths(self._path)

    def died(self, cause: DeathCause) -> None:
        """Its owner knows of what."""

    async def first(self) -> EngineClient:
        try:
            async with asyncio.timeout(self._within):
                return await self._attach()
        except TimeoutError:
            text = f"Engine {self._name} could not be reached within {self._within:g} seconds."
            raise EngineUnavailableError(text) from None

    async def again(self, error: PenstockError, ran: float) -> EngineClient:
        logger.warning("Engine %s: %s Waiting for it to come back.", self._name, error)
        return await self._attach()

    async def _attach(self) -> EngineClient:
        pause = FIRST_RETRY
        while True:
            try:
                async with asyncio.timeout(ATTACH_WITHIN):
                    return await EngineClient.attach(self._path)
            except (EngineUnavailableError, TimeoutError):
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_RETRY)
