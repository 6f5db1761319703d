"""What the handlers share: the model, its backend, the metrics, and whether the doors are still open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from penstock.errors import EngineUnavailableError
from penstock.gateway.keys import ApiKeys
from penstock.gateway.local.model import ServedModel
from penstock.gateway.local.tokens import TokenSource
from penstock.observe.metrics import Metrics


class Running(Protocol):
    """The engine's work for one HTTP request: a generation, or texts to be pooled."""

    def abort(self, error: BaseException) -> None:
        """Make whoever waits for it raise `error`."""

    async def close(self) -> None:
        """Stop what still runs."""


class Gateway:
    def __init__(self, model: ServedModel, backend: TokenSource, keys: ApiKeys) -> None:
        self.model = model
        self.backend = backend
        self.keys = keys
        self.metrics = Metrics(model.names[0], backend.info, lambda: backend.stats)
        self.draining = False
        self._running: set[Running] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def running(self, work: Running) -> AsyncIterator[None]:
        """Admit a request's work and see to it that it is closed. Refuses once the server is draining."""
        if self.draining:
            raise EngineUnavailableError("The server is shutting down; send the request to another one.")
        if self.backend.failure is not None:
            raise EngineUnavailableError(str(self.backend.failure))
        self._running.add(work)
        self._idle.clear()
        try:
            yield
        finally:
            try:
                await work.close()
            finally:
                self._running.discard(work)
                if not self._running:
                    self._idle.set()

    async def drain(self) -> None:
        """Take no new work and wait for what runs."""
        self.draining = True
        await self._idle.wait()

    def abort_all(self, reason: str) -> None:
        """End everything that runs with an error that gives this reason."""
        self.draining = True
        for work in self._running:
            work.abort(EngineUnavailableError(reason))
