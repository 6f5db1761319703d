"""A second look at a tier's answer before it is sent: it is held, looked at, and released or taken back.

What makes an answer doubtful `aio.cascade` knows; here are only the client, the bytes and the moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from penstock.aio.cascade import (
    FIELDS,
    Heard,
    Look,
    TokenScores,
    Wants,
    agreement,
    heard_stream,
    heard_whole,
    look_at,
    wants_of,
    worth_sampling,
)
from penstock.config import CascadeConfig
from penstock.gateway.exchange import DiscardedError, Exchange
from penstock.gateway.held import MAX_HELD_BYTES, HeldCall, HeldTap
from penstock.gateway.inquiry import OUTPUT_LIMITS, Inquiry
from penstock.protocol.shapes import UsageCount

# Another answer of the same tier to the same request; None if there is none to be had.
Sample = Callable[[], Awaitable[str | None]]

_NO: Final = (b"", b"false", b"null")


@dataclass(frozen=True, slots=True)
class Looked:
    """What came of one attempt. Unless `look` says no, the answer is with the client."""

    look: Look | None = None  # None: it was not looked at
    spent: UsageCount = field(default_factory=UsageCount)  # by an answer that was taken back, unbilled
    cost: float | None = None  # US dollars of that, at its tier's price; None: nothing, or there is no price
    kept: Kept | None = None  # the answer that was taken back, if all of it was there

    @property
    def escalate(self) -> bool:
        """Whether somebody else must answer."""
        return self.look is not None and not self.look.accept


async def with_second_look(
    exchange: Exchange,
    attempt: Callable[[], Awaitable[None]],
    options: CascadeConfig,
    question: str,
    *,
    sample: Sample | None = None,
    usual: float | None = None,
) -> Looked:
    """Run one tier's attempt at answering, and look at what it writes before the client gets it.

    A whole answer is looked at when the attempt is over, a stream once `hold_tokens` have come. One that does
    not pass is taken back, and the exchange is as before the attempt; so it is when the attempt raises while
    nothing has been sent. `question`: what the user asks. `usual`: tokens that such an answer has at this
    tier. `sample` is called while the request has no place at any replica.
    """
    if not _can_be_looked_at(exchange, options):
        await attempt()
        return Looked()
    return await _Looking(exchange, options, question, sample, usual).run(attempt)


def _can_be_looked_at(exchange: Exchange, options: CascadeConfig) -> bool:
    """One answer, in words, that does not repeat its prompt."""
    inquiry = exchange.sent
    return (
        inquiry.operation in OUTPUT_LIMITS
        and inquiry.choices == 1
        and (options.hold_tokens > 0 or not inquiry.stream)
        and bytes(inquiry.fields.get("echo", b"")) in _NO
    )


class _Looking:
    """One attempt, from its beginning to the decision."""

    def __init__(
        self,
        exchange: Exchange,
        options: CascadeConfig,
        question: str,
        sample: Sample | None,
        usual: float | None,
    ) -> None:
        self._exchange = exchange
        self._options = options
        self._asks = exchange.asked[0].asks
        self._wants = _wants(question, exchange.sent)
        self._sample = sample
        self._usual = usual
        self._call, self._tap = exchange.call, exchange.tap
        self._held = HeldCall(exchange.call, self._written)
        self._held_tap = None if exchange.tap is None else HeldTap(exchange.tap)
        self._scores = TokenScores(options.hold_tokens)
        self._look: Look | None = None
        self._taken = UsageCount()

    async def run(self, attempt: Callable[[], Awaitable[None]]) -> Looked:
        exchange = self._exchange
        exchange.call, exchange.tap, exchange.watch = self._held, self._held_tap, self._scores
        try:
            await attempt()
            if not self._held.released:
                self._look = await self._decided()
                if self._look is not None and not self._look.accept:
                    return self._taken_back(exchange.spent(), Kept(exchange, self._held, self._held_tap))
                await self._release()
            return Looked(self._look)
        except DiscardedError:
            return self._taken_back(self._taken, None)
        except BaseException:
            if not exchange.started:
                exchange.reset()
            raise
        finally:
            exchange.call, exchange.tap, exchange.watch = self._call, self._tap, None

    async def _written(self) -> None:
        """A part of a stream has come: enough to look at its beginning?"""
        exchange, held = self._exchange, self._held
        tokens = exchange.delivered.completion
        if tokens < self._options.hold_tokens and held.size < MAX_HELD_BYTES:
            return
        heard = heard_stream(self._asks, held.stream or b"", ended=False)
        self._look = None if heard is None else self._looked(heard, tokens)
        if self._look is not None and not self._look.accept:
            self._taken = replace(exchange.delivered)
            raise DiscardedError
        await self._release()

    async def _decided(self) -> Look | None:
        """About all of an answer; None: it is none that can be judged."""
        whole = self._held.whole
        if whole is None:
            heard = heard_stream(self._asks, self._held.stream or b"", ended=True)
        else:
            heard = heard_whole(self._asks, whole.body) if whole.status == 200 else None
        if heard is None:
            return None
        tokens = self._exchange.spent().completion
        look = self._looked(heard, tokens)
        samples, threshold = self._options.consistency, self._options.confidence
        if self._sample is None or not samples or not worth_sampling(look.confidence, threshold):
            return look
        others: list[str] = []
        # Of what is left until the request's deadline, whoever is asked next needs some.
        deadline = self._exchange.deadline
        patience = None if deadline is None else (deadline - time.monotonic()) / 2
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while len(others) < samples and (other := await self._sample()) is not None:
                    others.append(other)
        return self._looked(heard, tokens, agreement(self._wants.ask, heard.text, others))

    def _looked(self, heard: Heard, tokens: int, agreed: float | None = None) -> Look:
        return look_at(
            self._wants,
            heard,
            self._scores,
            tokens=tokens,
            threshold=self._options.confidence,
            agreed=agreed,
            usual=self._usual,
        )

    async def _release(self) -> None:
        self._exchange.call = self._call
        await _sent(self._exchange, self._held, self._held_tap)
        self._exchange.tap = self._tap

    def _taken_back(self, spent: UsageCount, kept: Kept | None) -> Looked:
        exchange = self._exchange
        cost = exchange.cost(spent) if spent.completion or exchange.answered else None
        exchange.reset()
        return Looked(self._look, spent, cost, kept)


class Kept:
    """A doubtful answer in hand: better than none, where nobody above can give another."""

    def __init__(self, exchange: Exchange, held: HeldCall, tap: HeldTap | None) -> None:
        self._exchange = exchange
        self._held = held
        self._tap = tap
        self._usage, self._answered = exchange.delivered, exchange.answered
        self._price, self._upstream_model = exchange.price, exchange.upstream_model
        self._tier, self._served_by = exchange.tier, exchange.served_by

    async def send(self) -> None:
        """Answer with it after all: it is billed, as its tier's, and is no longer what was taken back."""
        exchange = self._exchange
        exchange.reset()
        exchange.price, exchange.upstream_model = self._price, self._upstream_model
        exchange.tier, exchange.served_by = self._tier, self._served_by
        exchange.delivered, exchange.answered, exchange.begun = self._usage, self._answered, True
        await _sent(exchange, self._held, self._tap)


async def _sent(exchange: Exchange, held: HeldCall, tap: HeldTap | None) -> None:
    """Give the client what is held, and count it as delivered if it gets there."""
    ended, delivered = held.ended, exchange.delivered
    if tap is not None:
        tap.release()
    exchange.first_byte = time.monotonic()
    try:
        await held.release()
    except BaseException:
        exchange.delivered, exchange.answered = UsageCount(delivered.prompt), False
        raise
    exchange.done = ended


def _wants(question: str, inquiry: Inquiry) -> Wants:
    fields: dict[str, Any] = {}
    for name in FIELDS:
        if name in inquiry.fields:
            try:
                fields[name] = msgspec.json.decode(bytes(inquiry.fields[name]))
            except (msgspec.DecodeError, RecursionError):
                continue  # whoever answers says what is wrong with it
    return wants_of(question, fields)
