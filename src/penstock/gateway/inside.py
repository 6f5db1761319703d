"""Requests that the server makes of itself: through the same door as everybody's, in a tenant of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.types import Message

from penstock import logs
from penstock.config.tiers import INSIDE
from penstock.errors import PenstockError
from penstock.gateway.accounts import Caller
from penstock.gateway.accounts.price import DOLLAR
from penstock.gateway.ask import DEADLINE_HEADER, ask
from penstock.gateway.call import Call
from penstock.gateway.queue import CLASS_HEADER
from penstock.gateway.routing.wish import TIER_HEADER
from penstock.gateway.state import Gateway
from penstock.protocol.errors import failure
from penstock.protocol.openapi import OPERATIONS

ASK_SECONDS: Final = 600.0
_OURSELVES: Final = Caller(INSIDE, salt=INSIDE, inside=True)
_BY_NAME: Final = {operation.name: operation for operation in OPERATIONS}


@dataclass(frozen=True, slots=True)
class InsideAnswer:
    status: int
    body: bytes
    cost: int  # picodollars

    @property
    def ok(self) -> bool:
        return self.status == 200


async def ask_inside(
    gateway: Gateway,
    operation: str,
    body: Mapping[str, Any],
    *,
    tier: str,
    service_class: str = "batch",
    seconds: float = ASK_SECONDS,
) -> InsideAnswer:
    """Have a tier answer, unstreamed, within so many seconds. What goes wrong is a status, no exception."""
    headers = {
        "content-type": "application/json",
        # What is asked again is to be answered again, and may be of a client that wants nothing kept.
        "cache-control": "no-store",
        CLASS_HEADER: service_class,
        TIER_HEADER: tier,
        DEADLINE_HEADER: str(round(seconds * 1000)),
    }
    content = msgspec.json.encode({**body, "model": "auto", "stream": False, "stream_options": None})
    wire = _Wire(content, headers)
    # In a task of its own: ending a request cancels the task that answers it.
    asking = asyncio.create_task(_asked(gateway, operation, wire))
    try:
        async with asyncio.timeout(seconds + 1.0):
            await asking
    except TimeoutError:
        return InsideAnswer(504, b"", 0)
    finally:
        asking.cancel()
    return wire.answer()


async def _asked(gateway: Gateway, operation: str, wire: _Wire) -> None:
    call = Call(wire.scope, wire.receive, wire.send)
    logs.request_id.set(call.id)
    try:
        await ask(gateway, call, _BY_NAME[operation], _OURSELVES)
    except PenstockError as error:
        await call.answer_failure(failure(error))


class _Wire:
    """Both ends of a connection that does not leave the process."""

    def __init__(self, body: bytes, headers: Mapping[str, str]) -> None:
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        self._body: bytes | None = body
        self._status = 500
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []

    async def receive(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()  # nobody hangs up here
        body, self._body = self._body, None
        return {"type": "http.request", "body": body or b"", "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = dict(message["headers"])
        else:
            self._parts.append(message.get("body", b""))

    def answer(self) -> InsideAnswer:
        dollars = float(self._headers.get(b"x-penstock-cost", b"0"))
        return InsideAnswer(self._status, b"".join(self._parts), round(dollars * DOLLAR))
