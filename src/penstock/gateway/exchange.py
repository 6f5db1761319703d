"""One request for a model and its answer: what was asked, by whom, until when, and what was delivered."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.gateway.call import Call
from penstock.gateway.inquiry import Inquiry
from penstock.protocol import sse
from penstock.protocol.openapi import Operation
from penstock.protocol.shapes import UsageCount

if TYPE_CHECKING:
    from penstock.gateway.accounts.keys import Caller
    from penstock.gateway.accounts.ledger import Price
    from penstock.gateway.local.prepare import Prepared

Header = tuple[bytes, bytes]

PICO: Final = 10**12


class Exchange:
    """Passed from admission to the backend that answers. `started`: the client has seen a byte of it.

    `delivered` counts what has been written to the client: tokens of the answer as they go out, those of
    the prompt as soon as anybody knows them. What is not delivered is not billed.
    """

    __slots__ = (
        "arrived",
        "call",
        "caller",
        "deadline",
        "delivered",
        "headers",
        "inquiry",
        "model",
        "operation",
        "prepared",
        "price",
        "priority",
        "saved",
        "tier",
        "upstream_model",
    )

    def __init__(
        self, call: Call, operation: Operation, inquiry: Inquiry, caller: Caller, arrived: float
    ) -> None:
        self.call = call
        self.operation = operation
        self.inquiry = inquiry
        self.caller = caller
        self.arrived = arrived  # seconds, monotonic
        self.deadline: float | None = None  # seconds, monotonic: an answer that begins later is worthless
        self.model = inquiry.model or ""  # the name that the client used, and is answered under
        self.tier = ""  # the configured model that answers
        self.upstream_model = ""  # what the backend calls it
        self.price: Price | None = None
        self.priority = 0  # lower is earlier
        self.saved = 0  # tokens of the prompt that were left out by policy
        self.prepared: Prepared | None = None  # by the tokenizer, if the model has one here
        self.delivered = UsageCount()
        self.headers: list[Header] = []  # for the answer, whatever it will be

    @property
    def started(self) -> bool:
        """From here on the request cannot be given to anybody else."""
        return self.call.status != 0

    @property
    def salt(self) -> str:
        """Keeps what one tenant has computed from all others; a client may part its own further."""
        return f"{self.caller.salt}/{self.inquiry.cache_salt}"

    def latency_ms(self) -> float:
        return round((time.monotonic() - self.arrived) * 1000, 3)

    def cost(self, usage: UsageCount) -> float | None:
        """US dollars; None for a model without a price."""
        if self.price is None:
            return None
        return self.price.cost(usage.prompt, usage.cached, usage.completion) / PICO

    async def answer(
        self,
        body: bytes,
        usage: UsageCount | None = None,
        *,
        status: int = 200,
        content_type: bytes = b"application/json",
        headers: Iterable[Header] = (),
    ) -> None:
        """The whole answer. Its `usage` gets the cost and the latency, unless it has them already."""
        fields = [*self._named(), *headers, (b"x-penstock-latency-ms", b"%g" % self.latency_ms())]
        if usage is not None:
            cost = self.cost(usage)
            if cost is not None:
                fields.append((b"x-penstock-cost", _decimal(cost)))
            body = with_charges(body, cost, self.latency_ms())
        await self.call.answer(body, status=status, content_type=content_type, fields=fields)
        if usage is not None:
            self.delivered = usage

    async def start_stream(self, headers: Iterable[Header] = ()) -> None:
        await self.call.start_stream([*self._named(), *headers])

    async def write(self, data: bytes, tokens: int = 0) -> None:
        """A part of the stream, with so many tokens of the answer."""
        await self.call.write(data)
        self.delivered.completion += tokens

    async def end_stream(self, data: bytes = b"", tokens: int = 0) -> None:
        await self.call.end_stream(data)
        self.delivered.completion += tokens

    async def fail_stream(self, error: BaseException) -> None:
        """The status line said 200 long ago: the error must be an event of the stream, and its last."""
        await self.call.end_stream(sse.error_event(error) + sse.DONE)

    def billed(self) -> UsageCount:
        """What the tenant pays: the prompt once something came of it, and the tokens that went out."""
        return self.delivered if self.delivered.completion or not self.inquiry.stream else UsageCount()

    def _named(self) -> list[Header]:
        return [
            *self.headers,
            (b"x-penstock-tier", self.tier.encode()),
            (b"x-penstock-model", self.upstream_model.encode()),
        ]


class _Used(msgspec.Struct):
    usage: msgspec.Raw = msgspec.Raw(b"")


_used: Final = msgspec.json.Decoder(_Used)


def with_charges(body: bytes, cost: float | None, latency_ms: float) -> bytes:
    """A JSON object whose `usage` also says what it cost and how long it took; the rest unchanged."""
    usage = bytes(_used.decode(body).usage)
    if not usage.endswith(b"}") or b'"latency_ms"' in usage:
        return body
    at = body.rfind(usage) + len(usage) - 1
    charges = b'"latency_ms":%g' % latency_ms
    if cost is not None:
        charges = b'"cost":%b,' % _decimal(cost) + charges
    comma = b"" if usage[1:-1].strip() == b"" else b","
    return body[:at] + comma + charges + body[at:]


def _decimal(dollars: float) -> bytes:
    """As a JSON number that people can read: no exponent, no trailing zeros."""
    text = f"{dollars:.12f}".rstrip("0")
    return (text + "0" if text.endswith(".") else text).encode()
