"""One request for a model and its answer: what was asked, by whom, until when, and what was delivered."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from penstock.gateway.accounts.price import DOLLAR, MOST_TOKENS, countable
from penstock.gateway.call import ClientGoneError
from penstock.gateway.inquiry import Inquiry
from penstock.observe.record import RequestRecord
from penstock.observe.trace import joined
from penstock.protocol import sse
from penstock.protocol.anthropic_errors import anthropic_error_event
from penstock.protocol.anthropic_face import MessagesFace
from penstock.protocol.errors import SERVER_ERROR, HTTPError, failure
from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.openapi import Operation
from penstock.protocol.shapes import UsageCount

if TYPE_CHECKING:
    from penstock.gateway.accounts.keys import Caller
    from penstock.gateway.accounts.price import Price
    from penstock.gateway.local.prepare import Prepared
    from penstock.gateway.routing.router import Route

Header = tuple[bytes, bytes]

PICO: Final = DOLLAR


class DiscardedError(Exception):
    """What is being written will not be sent: whoever computes it should stop. It is nobody's failure."""


class AnyCall(Protocol):
    """Where an answer is written: the client's call, or what stands in for it for a while."""

    @property
    def id(self) -> str: ...

    @property
    def headers(self) -> dict[bytes, bytes]: ...

    @property
    def status(self) -> int:
        """0 until the client has been sent a byte."""

    def when_left(self, act: Callable[[], None]) -> Callable[[], None]: ...

    async def answer(
        self, body: bytes, *, status: int = 200, content_type: bytes = ..., fields: Iterable[Header] = ()
    ) -> None: ...

    async def start_stream(self, fields: Iterable[Header] = ()) -> None: ...

    async def write(self, data: bytes) -> None: ...

    async def end_stream(self, data: bytes) -> None: ...


class Watch(Protocol):
    """Who wants to know how sure the model was, whether or not the client does."""

    def token(self, logprob: float) -> None:
        """The next token of the answer had this natural-log probability."""

    def clear(self) -> None:
        """Those so far belong to an answer that will not be sent."""


class Tap(Protocol):
    """Sees an answer as it is written, before it is put into the client's own words."""

    def whole(self, body: bytes, usage: UsageCount | None, status: int) -> None:
        """An answer in one piece; `usage` is not charged yet."""

    def began(self) -> None:
        """A stream begins."""

    def part(self, data: bytes) -> None: ...

    def ended(self, data: bytes) -> None:
        """The last part of a stream that came to its end. One that failed has none."""

    def keeps(self) -> bool:
        """Whether others need the answer, though the client that asked for it has left."""


class Exchange:
    """Passed from admission to the backend that answers. `started`: the client has seen a byte of it;
    `begun`: whoever answers has begun to write, though it may be held back.

    `delivered` counts what has been written to the client: tokens of the answer as they go out. Those of the
    prompt are an estimate until somebody knows them better. What is not delivered is not billed.
    """

    __slots__ = (
        "aborted",
        "alarm",
        "answered",
        "arrived",
        "asked",
        "begun",
        "call",
        "caller",
        "deadline",
        "deaths",
        "delivered",
        "done",
        "face",
        "first_byte",
        "headers",
        "inquiry",
        "left",
        "model",
        "operation",
        "prepared",
        "price",
        "priority",
        "record",
        "route",
        "saved",
        "sent",
        "served_by",
        "tap",
        "task",
        "tier",
        "unmarked",
        "upstream_model",
        "watch",
    )

    def __init__(
        self,
        call: AnyCall,
        operation: Operation,
        inquiry: Inquiry,
        caller: Caller,
        arrived: float,
        record: RequestRecord | None = None,
    ) -> None:
        self.call = call
        self.record = record or RequestRecord(
            call.id, operation.asks, arrived, time.time(), trace=joined(call.headers)
        )
        self.operation = operation
        self.inquiry = inquiry
        self.sent = inquiry  # as the client said it; who answers may be asked otherwise
        self.asked = operation, inquiry  # as it is put to the tier that answers
        self.route: Route | None = None  # how a tier was chosen, where that was left to us
        self.face: MessagesFace | None = None  # turns what is written into what the client understands
        self.caller = caller
        self.arrived = arrived  # seconds, monotonic
        self.deadline: float | None = None  # seconds, monotonic: an answer that begins later is worthless
        self.model = inquiry.model or ""  # the name that the client used, and is answered under
        self.tier = ""  # of the ladder; the configured model itself, where it was asked for by its name
        self.served_by = ""  # the configured model that answers
        self.upstream_model = ""  # what the backend calls it
        self.price: Price | None = None
        self.priority = 0  # lower is earlier
        self.deaths = 0  # replicas that went down with it
        self.saved = 0  # tokens of the prompt that were left out by policy
        self.prepared: Prepared | None = None  # by the tokenizer, if the model has one here
        self.delivered = UsageCount()
        self.tap: Tap | None = None  # whoever keeps or shares what is written
        self.unmarked = False  # its stream stopped without a mark of its end: perhaps it was cut
        self.task = asyncio.current_task()
        self.left = False  # the client has
        self.alarm: asyncio.TimerHandle | None = None  # for its deadline
        self.aborted: BaseException | None = None  # why it is being ended from outside
        self.done = False  # nothing can end it any more
        self.begun = False
        self.answered = False  # whole, not as a stream
        self.watch: Watch | None = None  # an engine of ours tells it the log-probability of each token
        self.first_byte = 0.0  # seconds, monotonic: when the answer began; 0: not yet
        self.headers: list[Header] = []  # for the answer, whatever it will be

    @property
    def started(self) -> bool:
        """From here on the request cannot be given to anybody else."""
        return self.call.status != 0

    @property
    def salt(self) -> str:
        """Keeps what one tenant has computed from all others; a client may part its own further."""
        return f"{self.caller.salt}/{self.inquiry.cache_salt}"

    def ask_as(self, inquiry: Inquiry) -> None:
        """Put the client's request in this way from now on, to whoever is asked next."""
        self.asked = self.asked[0], inquiry
        self.inquiry = inquiry

    def latency_ms(self) -> float:
        return round((time.monotonic() - self.arrived) * 1000, 3)

    def cost(self, usage: UsageCount) -> float | None:
        """US dollars; None for a model without a price."""
        if self.price is None:
            return None
        usage = _countable(usage)
        return self.price.cost(usage.prompt, usage.cached, usage.completion) / PICO

    def charge(self, usage: UsageCount) -> None:
        """Note in `usage` what it costs and how long it took, before it is written out."""
        usage.cost, usage.latency_ms = self.cost(usage), self.latency_ms()

    def say(self, name: bytes, value: bytes) -> None:
        """In a header of the answer; what was said before by that name no longer holds."""
        self.headers = [header for header in self.headers if header[0] != name] + [(name, value)]

    def abort(self, error: BaseException) -> None:
        """End the work on it at once, as if it had failed with `error`. The first reason counts, but a client
        that has left stays away."""
        self.left = self.left or isinstance(error, ClientGoneError)
        if isinstance(error, ClientGoneError) and self.tap is not None and self.tap.keeps():
            return
        if self.aborted is None and not self.done:
            self.aborted = error
            assert self.task is not None, "an exchange belongs to the task that answers it"
            self.task.cancel()

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
        if self.tap is not None:
            self.tap.whole(body, usage, status)
        fields = [*self._named(), *headers]
        if usage is not None:
            if usage.latency_ms is None:
                self.charge(usage)
                body = with_charges(body, usage)
            fields.append((b"x-penstock-latency-ms", b"%g" % (usage.latency_ms or 0.0)))
            if usage.cost is not None:
                fields.append((b"x-penstock-cost", decimal(usage.cost)))
        if self.face is not None and status == 200:
            body = _faced(self.face.whole, body)
        self.begun, self.first_byte = True, time.monotonic()
        await self.call.answer(body, status=status, content_type=content_type, fields=fields)
        if usage is not None:
            self.delivered = _countable(usage)
            self.answered = True
        self.done = self.started

    async def start_stream(self, headers: Iterable[Header] = ()) -> None:
        if self.tap is not None:
            self.tap.began()
        self.begun, self.first_byte = True, time.monotonic()
        await self.call.start_stream([*self._named(), *headers])

    async def write(self, data: bytes, tokens: int = 0) -> None:
        """A part of the stream, with so many tokens of the answer."""
        if self.tap is not None:
            self.tap.part(data)
        if self.face is not None:
            data = _faced(self.face.feed, data)
        delivered = self.delivered
        delivered.completion += tokens
        if tokens and not self.record.first_token:
            self.record.first_token = time.monotonic()
        try:
            if data:
                await self.call.write(data)
        except BaseException:
            delivered.completion -= tokens
            raise

    async def end_stream(self, data: bytes = b"", tokens: int = 0) -> None:
        if self.tap is not None:
            self.tap.ended(data)
        if self.face is not None:
            data = _faced(self.face.feed, data)
        self.record.last_token = time.monotonic()
        await self.call.end_stream(data)
        self.delivered.completion += tokens
        self.done = self.started  # whoever hangs up now has had all of it

    async def fail_stream(self, error: BaseException) -> None:
        """The status line said 200 long ago: the error must be an event of the stream, and its last."""
        asked = self.asked[0].asks
        if asked == "createMessage":
            event = anthropic_error_event(failure(error), self.call.id)
        elif asked == "createResponse":  # events have names there, and no mark ends them
            event = b"event: error\n" + sse.error_event(error)
        else:
            event = sse.error_event(error) + sse.DONE
        await self.call.end_stream(event)

    def reset(self) -> UsageCount:
        """Make it as it was before anybody began to answer, which is possible until it is `started`: what was
        written and held back does not count any more. What that had taken."""
        assert not self.started, "what the client has seen cannot be taken back"
        taken = self.spent()
        self.delivered = UsageCount(self.delivered.prompt)
        self.begun = self.answered = self.done = False
        self.first_byte = self.record.first_token = self.record.last_token = 0.0
        if self.face is not None:
            self.face = MessagesFace(self.model, self.call.id)
        if self.watch is not None:
            self.watch.clear()
        return taken

    def spent(self) -> UsageCount:
        """What the answer took so far, sent or held back: the prompt once something came of it. Servers that
        have lost count are taken at what books can hold."""
        delivered = _countable(self.delivered)
        return delivered if delivered.completion or self.answered else UsageCount()

    def billed(self) -> UsageCount:
        """What the tenant pays: the prompt once something came of it, and the tokens that went out."""
        return self.spent() if self.started else UsageCount()

    def _named(self) -> list[Header]:
        return [
            *self.headers,
            (b"x-penstock-tier", self.tier.encode()),
            (b"x-penstock-model", self.upstream_model.encode()),
        ]


def _countable(usage: UsageCount) -> UsageCount:
    if max(usage.prompt, usage.completion) <= MOST_TOKENS:
        return usage
    prompt = countable(usage.prompt)
    return dataclasses.replace(
        usage,
        prompt=prompt,
        completion=countable(usage.completion),
        cached=min(countable(usage.cached), prompt),
    )


def _faced(translate: Callable[[bytes], bytes], data: bytes) -> bytes:
    try:
        return translate(data)
    except ForeignAnswerError as error:
        raise HTTPError(502, str(error), code="bad_gateway", type=SERVER_ERROR) from error


class _Used(msgspec.Struct):
    usage: msgspec.Raw = msgspec.Raw(b"")


_used: Final = msgspec.json.Decoder(_Used)


def with_charges(body: bytes, usage: UsageCount) -> bytes:
    """A JSON object whose `usage` also says what it cost and how long it took; the rest unchanged."""
    found = bytes(_used.decode(body).usage)
    if not found.endswith(b"}"):
        return body
    # In a string its quotes would be escaped: where this stands is a field. One without content has none
    # of its own, and is found behind its name.
    empty = not found[1:-1].strip()
    at = body.find(found, body.rfind(b'"usage"')) if empty else body.rfind(found)
    at += len(found) - 1
    charges = b'"latency_ms":%g' % (usage.latency_ms or 0.0)
    if usage.cost is not None:
        charges = b'"cost":%b,' % decimal(usage.cost) + charges
    return body[:at] + (b"" if empty else b",") + charges + body[at:]


def decimal(dollars: float) -> bytes:
    """As a number that people can read: no exponent, no trailing zeros."""
    text = f"{dollars:.12f}".rstrip("0")
    return (text + "0" if text.endswith(".") else text).encode()
