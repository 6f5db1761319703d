"""A front door with a response cache and one model, whose server counts what it is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.config import BackendConfig, GatewayConfig, HealthConfig, ModelConfig, PriceConfig, TenantConfig
from penstock.gateway import ask as asking
from penstock.gateway.accounts import Accounts, Caller, KeyRing
from penstock.gateway.backends.relay import RelayBackend
from penstock.gateway.cache.cache import ResponseCache
from penstock.gateway.call import Call, ClientGoneError
from penstock.gateway.deployment import Deployment
from penstock.gateway.discovery import SharedRegistry
from penstock.gateway.drains import Drains
from penstock.gateway.state import Gateway
from penstock.observe.metrics import Metrics
from penstock.protocol.errors import failure
from penstock.protocol.openapi import OPERATIONS
from tests.servers.http import LocalServer
from tests.servers.openai import Fleet

ACME = Caller("acme")


@dataclass
class Answer:
    """What a client sees, as it comes."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    left: asyncio.Event = field(default_factory=asyncio.Event)  # set it, and the client hangs up
    grew: asyncio.Event = field(default_factory=asyncio.Event)
    reads: asyncio.Event | None = None  # until it is set, the client takes nothing but the first bytes

    @property
    def cache(self) -> str | None:
        return self.headers.get("x-penstock-cache")

    def json(self) -> Any:
        assert self.status == 200, self.body
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """The chunks of a stream that ended as it should."""
        *events, done, rest = self.body.decode().split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def text(self) -> str:
        if self.headers["content-type"].startswith("application/json"):
            return str(self.json()["choices"][0]["message"]["content"])
        parts = [choice["delta"] for event in self.events() for choice in event["choices"]]
        return "".join(part.get("content") or "" for part in parts)

    async def has(self, size: int) -> None:
        """Wait until so many bytes have come."""
        while len(self.body) < size:
            self.grew.clear()
            await self.grew.wait()


class Front:
    def __init__(self, gateway: Gateway, cache: ResponseCache, server: LocalServer) -> None:
        self.gateway = gateway
        self.cache = cache
        self.server = server

    @property
    def asked(self) -> int:
        """How often the server was asked for an answer."""
        return sum(request.method == "POST" for request in self.server.requests)

    async def ask(
        self,
        body: dict[str, Any] | bytes,
        *,
        path: str = "/v1/chat/completions",
        caller: Caller = ACME,
        control: str = "",
        answer: Answer | None = None,
    ) -> Answer:
        """One request, answered to its end."""
        answer = Answer() if answer is None else answer
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        messages = iter([{"type": "http.request", "body": data}])

        async def receive() -> dict[str, Any]:
            for message in messages:
                return message
            await answer.left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            elif not answer.left.is_set():
                answer.body += message.get("body", b"")
                answer.grew.set()
                if answer.reads is not None:
                    await answer.reads.wait()

        headers = [(b"content-type", b"application/json")]
        if control:
            headers.append((b"cache-control", control.encode()))
        call = Call({"type": "http", "headers": headers}, receive, send)
        [operation] = [operation for operation in OPERATIONS if operation.path == path and operation.asks]
        try:
            await asking.ask(self.gateway, call, operation, caller)
        except ClientGoneError:
            answer.status = 499
        except Exception as error:
            await call.answer_failure(failure(error))
        return answer

    def spent(self) -> int:
        """Picodollars."""
        return self.gateway.accounts.ledger.spent("acme", "")


def plan(tokens: int = 3, **fields: Any) -> dict[str, Any]:
    """A request that the server answers with so many words; `faults` and `pause` are the server's to obey."""
    content = {"tokens": tokens, **{name: fields.pop(name) for name in ("faults", "pause") if name in fields}}
    return {"messages": [{"role": "user", "content": json.dumps(content)}], "temperature": 0, **fields}


@asynccontextmanager
async def front(
    cache: ResponseCache, *tenants: TenantConfig, kind: str = "openai", upstream: LocalServer | None = None
) -> AsyncIterator[Front]:
    async with upstream or Fleet().replica() as server:
        backend = BackendConfig(name="b", kind=kind, url=server.url, model="upstream")
        price = PriceConfig(input=1.0, output=2.0)
        model = ModelConfig(name="m", aliases=("alias",), backends=(backend,), price=price)
        config = GatewayConfig(tenants=(TenantConfig(name="acme"), *tenants))
        deployment = Deployment(model, config, None)
        registry, drains = SharedRegistry(Path("unused")), Drains(Path("unused"))
        gateway = Gateway(config, [deployment], KeyRing(), Accounts.open(None), Metrics(), registry, drains)
        relay = RelayBackend(model, backend, HealthConfig())
        deployment.dispatcher.add(relay, 1.0)
        await relay.start()
        gateway.cache = cache
        clock = asyncio.create_task(gateway.keep_time())
        try:
            yield Front(gateway, cache, server)
        finally:
            clock.cancel()
            await relay.close()
            await cache.close()
