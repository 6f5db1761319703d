"""One request through one relayed backend, from the client's bytes to what it gets and what is billed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.config import BackendConfig, HealthConfig, ModelConfig
from penstock.gateway.accounts import Caller
from penstock.gateway.backends.relay import RelayBackend
from penstock.gateway.call import Call
from penstock.gateway.exchange import Exchange
from penstock.gateway.inquiry import Inquiry
from penstock.protocol.openapi import OPERATIONS
from penstock.protocol.shapes import UsageCount


@dataclass
class Got:
    """What the client saw. `writes`: each piece of the body as it was sent."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    writes: list[bytes] = field(default_factory=list)
    ended: bool = False
    blocked: bool = False  # it reads the head, and nothing more
    exchange: Exchange | None = None

    async def reached(self, writes: int) -> None:
        """Wait until so many pieces have come."""
        while len(self.writes) < writes:  # noqa: ASYNC110 (what is watched is a list)
            await asyncio.sleep(0.001)

    @property
    def body(self) -> bytes:
        return b"".join(self.writes)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The stream's data, decoded; `[DONE]` as that text."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    @property
    def text(self) -> str:
        choices = [event["choices"][0] for event in self.events if event != "[DONE]" and event["choices"]]
        return "".join(
            choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices
        )

    @property
    def delivered(self) -> UsageCount:
        assert self.exchange is not None
        return self.exchange.delivered


def backend_of(url: str, kind: str = "openai_compatible", **options: Any) -> RelayBackend:
    config = BackendConfig(name="b", kind=kind, url=url, **{"model": "upstream-name", **options})
    return RelayBackend(ModelConfig(name="mine"), config, HealthConfig())


def exchange_of(
    asks: str,
    body: Mapping[str, Any],
    got: Got,
    headers: Mapping[str, str] | None = None,
    caller: Caller | None = None,
) -> Exchange:
    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            got.status = message["status"]
            got.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        if got.blocked:
            await asyncio.Event().wait()
        got.writes.append(message.get("body", b""))
        got.ended = not message.get("more_body", False)

    fields = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    call = Call({"type": "http", "headers": fields}, receive, send)
    operation = next(operation for operation in OPERATIONS if operation.name == asks)
    inquiry = Inquiry(asks, json.dumps(body).encode())
    return Exchange(call, operation, inquiry, caller or Caller("t"), time.monotonic())


async def ask(
    backend: RelayBackend,
    body: Mapping[str, Any],
    asks: str = "createChatCompletion",
    got: Got | None = None,
    **more: Any,
) -> Got:
    """Answered to its end, or raising what the backend raised."""
    got = got or Got()
    got.exchange = exchange_of(asks, {"model": "mine", **body}, got, **more)
    await backend.answer(got.exchange)
    return got
