"""The texts of one HTTP request on their way through the engine: some at a time, vectors in order."""

from __future__ import annotations

import asyncio
import time
import uuid

from penstock.engine.request import Request, TokenEvent
from penstock.engine.vectors import Vector, vector
from penstock.errors import QueueFullError
from penstock.gateway.call import Call
from penstock.gateway.local.tokens import RETRY_SECONDS, EventStream
from penstock.gateway.serving import serving
from penstock.gateway.state import Gateway
from penstock.observe.metrics import Ending
from penstock.protocol.errors import SERVER_ERROR, HTTPError
from penstock.protocol.pooled import PooledRequest
from penstock.text.reading import Read

# Texts of one HTTP request in the engine at once: enough for its steps to be full, and no more, so that a
# request of thousands of texts leaves room in the queue for others.
WINDOW = 256


async def pool(
    gateway: Gateway, call: Call, texts: list[Read], request: PooledRequest, arrived: float
) -> list[Vector] | None:
    """The vectors of all texts, in their order; None if the client did not wait for them."""
    name = uuid.uuid4().hex
    salt = f"{call.tenant}/{request.cache_salt or ''}"
    requests = [
        Request(
            id=f"pool-{name}-{number}",
            prompt=text.ids,
            segments=text.segments,
            pooling=gateway.backend.info.pooling,
            priority=request.priority or 0,
            salt=salt,
        )
        for number, text in enumerate(texts)
    ]
    pooled = Pooled(gateway, requests, arrived)
    async with serving(gateway, call, pooled, pooled.count_unfinished):
        await pooled.run()
    return pooled.vectors


class Pooled:
    """Whoever starts one must close it, whatever happens in between."""

    def __init__(self, gateway: Gateway, requests: list[Request], arrived: float) -> None:
        self._backend = gateway.backend
        self._metrics = gateway.metrics
        self._requests = requests
        self._arrived = arrived
        self._sent = 0  # requests that the backend took
        self._found: dict[int, Vector] = {}
        self._streams: dict[int, EventStream] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._error: BaseException | None = None

    @property
    def begun(self) -> bool:
        return bool(self._found)

    def start(self) -> None:
        self._send()

    async def run(self) -> None:
        """Until all vectors have come. `start` it first."""
        while len(self._found) < len(self._requests):
            if self._streams:
                await self._wake.wait()
            else:
                await asyncio.sleep(RETRY_SECONDS)
            self._wake.clear()
            if self._error is not None:
                raise self._error
            self._send()

    @property
    def vectors(self) -> list[Vector] | None:
        """All of them, in the order of the requests; None as long as any is missing."""
        if len(self._found) < len(self._requests):
            return None
        return [self._found[number] for number in range(len(self._requests))]

    def abort(self, error: BaseException) -> None:
        """Make `run` raise `error`: the client left, or the server must stop."""
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
            self.abort(error)
        finally:
            del self._streams[number]
            events.close()
            self._wake.set()

    def _take(self, number: int, event: TokenEvent) -> None:
        if event.finish_reason != "stop":
            message = event.error or "The engine ended this request before it was complete."
            raise HTTPError(500, message, code="generation_failed", type=SERVER_ERROR)
        self._found[number] = vector(event.embedding)
        self._metrics.finished["stop"].inc()
        self._metrics.request_latency.observe(time.monotonic() - self._arrived)
