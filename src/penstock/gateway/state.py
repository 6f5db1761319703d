"""What the handlers share: the model, its backend, the metrics, and whether the doors are still open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.errors import EngineUnavailableError
from penstock.gateway.backends import Backend
from penstock.gateway.generation import Generation
from penstock.gateway.keys import ApiKeys
from penstock.gateway.model import ServedModel
from penstock.observe.metrics import Metrics


class Gateway:
    def __init__(self, model: ServedModel, backend: Backend, keys: ApiKeys) -> None:
        self.model = model
        self.backend = backend
        self.keys = keys
        self.metrics = Metrics(model.names[0], backend.info, lambda: backend.stats)
        self.draining = False
        self._running: set[Generation] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def running(self, generation: Generation) -> AsyncIterator[None]:
        """Admit a generation and see to it that it is closed. Refuses once the server is draining."""
        if self.draining:
            raise EngineUnavailableError("The server is shutting down; send the request to another one.")
        if self.backend.failure is not None:
            raise EngineUnavailableError(str(self.backend.failure))
        self._running.add(generation)
        self._idle.clear()
        try:
            yield
        finally:
            try:
                await generation.close()
            finally:
                self._running.discard(generation)
                if not self._running:
                    self._idle.set()

    async def drain(self) -> None:
        """Take no new generations and wait for the running ones."""
        self.draining = True
        await self._idle.wait()

    def abort_all(self, reason: str) -> None:
        """End every running generation with an error that gives this reason."""
        self.draining = True
        for generation in self._running:
            generation.abort(EngineUnavailableError(reason))
