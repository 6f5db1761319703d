"""A backend that answers at once, for what the gateway does with answers whatever computed them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from penstock.config import GatewayConfig, HealthConfig, ModelConfig
from penstock.engine.config import EngineInfo
from penstock.engine.request import EngineStats, Request, TokenEvent
from penstock.errors import PenstockError
from penstock.gateway import ask as asking
from penstock.gateway.accounts import Accounts, KeyRing
from penstock.gateway.accounts.keys import ANYBODY
from penstock.gateway.call import Call, ClientGoneError
from penstock.gateway.deployment import Deployment
from penstock.gateway.discovery import SharedRegistry
from penstock.gateway.drains import Drains
from penstock.gateway.health import Health, unwatched_limits
from penstock.gateway.local.backend import EngineBackend
from penstock.gateway.local.model import ServedModel
from penstock.gateway.state import Gateway
from penstock.observe.metrics import Metrics
from penstock.protocol.openapi import OPERATIONS


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

    def _close(self) -> None:
        self.open -= 1


class InstantEngine:
    """Its keeper: always there, always healthy."""

    name = "engine-0"

    def __init__(self, client: InstantBackend) -> None:
        self.client = client
        self.info = client.info
        self.stats = client.stats
        self.deaths: dict[str, int] = {}
        self.health = Health(unwatched_limits(HealthConfig()), time.monotonic())


def gateway_of(model: ServedModel, client: InstantBackend) -> Gateway:
    """A front door with this one model, and nobody to keep out."""
    metrics = Metrics()
    deployment = Deployment(ModelConfig(name=model.names[0]), GatewayConfig(), model)
    registry, drains = SharedRegistry(Path("unused")), Drains(Path("unused"))
    accounts = Accounts.open(None)
    gateway = Gateway(GatewayConfig(), [deployment], KeyRing(), accounts, metrics, registry, drains)
    engine = EngineBackend(InstantEngine(client), model, metrics.model(model.names[0]))
    deployment.dispatcher.add(engine, 1.0)
    return gateway


async def ask(gateway: Gateway, asks: str, body: dict[str, Any], left: asyncio.Event | None = None) -> bytes:
    """What one request is answered, headers aside. The client waits for it, or until it has left."""
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
    call = Call({"type": "http", "headers": headers}, receive, send)
    [operation] = [operation for operation in OPERATIONS if operation.name == asks]
    with contextlib.suppress(ClientGoneError):
        await asking.ask(gateway, call, operation, ANYBODY)
    return b"".join(message.get("body", b"") for message in sent)
