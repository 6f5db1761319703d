"""The texts of one HTTP request on their way through the engine: some at a time, vectors in order."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.engine.request import Request, TokenEvent
from penstock.engine.vectors import Vector, vector
from penstock.errors import QueueFullError
from penstock.gateway.exchange import Exchange
from penstock.gateway.local.endings import endings_counted
from penstock.gateway.local.tokens import RETRY_SECONDS, EventStream, TokenSource
from penstock.observe.metrics import Ending, ModelMetrics
from penstock.protocol.errors import SERVER_ERROR, HTTPError
from penstock.protocol.pooled import PooledRequest
from penstock.text.reading import Read

R = TypeVar("R", bound=PooledRequest, covariant=True)
# Texts of one HTTP request in the engine at once: enough for its steps to be full, and no more, so that a
# request of thousands of texts leaves room in the queue for others.
WINDOW = 256


@dataclass(frozen=True, slots=True)
class PooledPrepared(Generic[R]):
    """One HTTP request, ready to run: its texts as the engine reads them."""

    request: R
    texts: list[Read]

    @property
    def prompt_tokens(self) -> int:
        return sum(len(text.ids) for text in self.texts)

    @property
    def choices(self) -> int:
        return min(len(self.texts), WINDOW)


async def pool(
    source: TokenSource, metrics: ModelMetrics, exchange: Exchange, prepared: PooledPrepared[PooledRequest]
) -> list[Vector]:
    """The vectors of all texts, in their order."""
    name = uuid.uuid4().hex
    requests = [
        Request(
            id=f"pool-{name}-{number}",
            prompt=text.ids,
            segments=text.segments,
            pooling=source.info.pooling,
            priority=exchange.priority + (prepared.request.priority or 0),
            salt=exchange.salt,
        )
        for number, text in enumerate(prepared.texts)
    ]
    pooled = Pooled(source, metrics, requests, exchange.arrived)
    try:
        with endings_counted(exchange, lambda: pooled.begun, pooled.count_unfinished):
            return await pooled.run()
    finally:
        exchange.record.scheduled = pooled.scheduled
        await pooled.close()


class Pooled:
    """Whoever runs one must close it, whatever happens in between."""

    def __init__(
        self, source: TokenSource, metrics: ModelMetrics, requests: list[Request], arrived: float
    ) -> None:
        self._backend = source
        self._metrics = metrics
        self._requests = requests
        self._arrived = arrived
        self.scheduled = 0.0  # when the engine began with the first of them
        self._sent = 0  # requests that the backend took
        self._found: dict[int, Vector] = {}
        self._streams: dict[int, EventStream] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._error: BaseException | None = None

    @property
    def begun(self) -> bool:
        return bool(self._found)

    async def run(self) -> list[Vector]:
        """All vectors, in the order of the requests."""
        self._send()
        while len(self._found) < len(self._requests):
            if self._streams:
                await self._wake.wait()
            else:
                await asyncio.sleep(RETRY_SECONDS)
            self._wake.clear()
            if self._error is not None:
                raise self._error
            self._send()
        return [self._found[number] for number in range(len(self._requests))]

    def _fail(self, error: BaseException) -> None:
        """Make `run` raise `error`."""
        if self._error is None:
            self._error = error
            self._wake.set()

    async def close(self) -> None:
        """Stop what still runs, so that nobody computes for nobody."""
        pumps = list(self._pumps)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for stream in self._streams.values():  # of pumps that never came to run
            stream.close()

    def count_unfinished(self, ending: Ending) -> None:
        self._metrics.finished[ending].inc(len(self._requests) - len(self._found))

    def _send(self) -> None:
        """Submit as many as may be in the engine at once. Only the very first may be refused."""
        while self._sent < len(self._requests) and len(self._streams) < WINDOW:
            try:
                events = self._backend.submit(self._requests[self._sent])
            except QueueFullError:
                if not self._sent:
                    raise
                return
            self._streams[self._sent] = events
            pump = asyncio.create_task(self._pump(self._sent, events))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)
            self._sent += 1

    async def _pump(self, number: int, events: EventStream) -> None:
        try:
            async for event in events:
                if event.finish_reason is not None:
                    self._take(number, event)
        except Exception as error:
            self._fail(error)
        finally:
            del self._streams[number]
            events.close()
            self._wake.set()

    def _take(self, number: int, event: TokenEvent) -> None:
        if event.finish_reason != "stop":
            message = event.error or "The engine ended this request before it was complete."
            raise HTTPError(500, message, code="generation_failed", type=SERVER_ERROR)
        self._found[number] = vector(event.embedding)
        self.scheduled = self.scheduled or event.scheduled
        self._metrics.finished["stop"].inc()
        self._metrics.request_latency.observe(time.monotonic() - self._arrived)
