"""One request put to a backend directly, without the rest of the gateway around it."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from penstock.gateway.accounts.keys import ANYBODY
from penstock.gateway.backends import Backend
from penstock.gateway.call import Call
from penstock.gateway.exchange import Exchange
from penstock.gateway.inquiry import Inquiry
from penstock.protocol.openapi import OPERATIONS


@dataclass
class Asked:
    """A request and what its client has got so far."""

    exchange: Exchange
    messages: list[Any]

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def chunks(self) -> list[Any]:
        """The events of an OpenAI stream, which has ended as it should."""
        *events, done, rest = self.body.split(b"\n\n")
        assert (done, rest) == (b"data: [DONE]", b"")
        return [json.loads(event.removeprefix(b"data: ")) for event in events]

    @property
    def text(self) -> str:
        return "".join(
            choice["delta"].get("content") or "" if "delta" in choice else choice["text"]
            for chunk in self.chunks
            for choice in chunk["choices"]
        )


def asked(operation: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> Asked:
    """A request as the pipeline hands it to a backend. Call it inside the task that will answer."""
    messages: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def send(message: Any) -> None:
        messages.append(message)

    fields = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    call = Call({"type": "http", "headers": fields}, receive, send)
    found = next(each for each in OPERATIONS if each.asks == operation)
    inquiry = Inquiry(operation, json.dumps(body).encode())
    return Asked(Exchange(call, found, inquiry, ANYBODY, time.monotonic()), messages)


async def ask(
    backend: Backend, operation: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> Asked:
    """Have the backend answer to the end, or raise."""
    request = asked(operation, body, headers)
    await backend.answer(request.exchange)
    return request
