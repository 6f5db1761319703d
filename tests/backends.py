"""A backend that answers at once, for what the gateway does with answers whatever computed them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from penstock.engine.config import EngineInfo
from penstock.engine.request import EngineStats, Request, TokenEvent
from penstock.errors import PenstockError
from penstock.gateway.call import Call
from penstock.gateway.state import Gateway


class Events:
    def __init__(self, events: Iterable[TokenEvent], closed: Callable[[], None] = lambda: None) -> None:
        self._events = events
        self._closed = closed

    async def __aiter__(self) -> AsyncIterator[TokenEvent]:
        for event in self._events:
            yield event

    def close(self) -> None:
        self._closed()


class InstantBackend:
    """`reply` says what comes of each request; it may raise, as `submit` does."""

    failure: PenstockError | None = None
    stats = EngineStats()

    def __init__(self, info: EngineInfo, reply: Callable[[Request], Iterable[TokenEvent]]) -> None:
        self.info = info
        self._reply = reply
        self.open = 0  # requests that have not been closed

    def submit(self, request: Request) -> Events:
        events = self._reply(request)
        self.open += 1
        return Events(events, self._close)

    def cancel(self, request_id: str, index: int | None = None) -> None:
        pass

    async def not_ready(self) -> str | None:
        return None

    async def failed(self) -> PenstockError:
        raise NotImplementedError("This backend does not fail.")

    async def shutdown(self, drain_seconds: float) -> None:
        pass

    def _close(self) -> None:
        self.open -= 1


async def ask(
    gateway: Gateway,
    handler: Callable[[Gateway, Call], Awaitable[None]],
    body: dict[str, Any],
    left: asyncio.Event | None = None,
) -> bytes:
    """What a handler answers to one request, headers aside. The client waits for it, or until it has left."""
    sent: list[Any] = []
    messages = iter([{"type": "http.request", "body": json.dumps(body).encode()}])
    gone = left or asyncio.Event()

    async def receive() -> dict[str, Any]:
        for message in messages:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    await handler(gateway, Call({"type": "http", "headers": headers}, receive, send))
    return b"".join(message.get("body", b"") for message in sent)
