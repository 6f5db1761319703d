"""The response cache: what becomes of a request before anybody is asked, and of an answer afterwards."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

from penstock.gateway.accounts.price import DOLLAR
from penstock.gateway.cache.entry import Entry
from penstock.gateway.cache.flight import Flight, Flights
from penstock.gateway.cache.key import Question
from penstock.gateway.cache.record import Recorder
from penstock.gateway.cache.store import Shelf
from penstock.gateway.exchange import Exchange
from penstock.protocol.shapes import UsageCount

logger = logging.getLogger("penstock.gateway")

Outcome = Literal["hit", "semantic", "shared", "miss", "bypass"]

HEADER: Final = b"x-penstock-cache"
LARGE: Final = 128 << 10  # bytes of an answer; more are read in another thread
MAX_WRITES: Final = 256  # answers on their way to the store; more are not kept
_MAX_AGE: Final = re.compile(rb"max-age\s*=\s*\"?(\d{1,9})")


class Semantic(Protocol):
    """Finds a question that says the same as another of its partition."""

    async def find(self, partition: bytes, text: str) -> bytes | None:
        """The key of an answer to it."""

    async def note(self, partition: bytes, text: str, key: bytes) -> None:
        """The answer to this is kept under `key`."""

    async def forget(self, partition: bytes, key: bytes) -> None:
        """Nothing is kept under `key` any more."""

    def close(self) -> None:
        """It is not asked any more."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the client says about caches."""

    store: bool = True
    read: bool = True
    max_age: float | None = None  # seconds

    @classmethod
    def of(cls, header: bytes) -> Wishes:
        """From `Cache-Control`; what is not known there is no matter of this cache."""
        words = {word.partition(b"=")[0].strip() for word in header.lower().split(b",")}
        age = _MAX_AGE.search(header.lower())
        return cls(
            store=b"no-store" not in words,
            read=b"no-store" not in words and b"no-cache" not in words,
            max_age=None if age is None else float(age[1]),
        )


@dataclass(frozen=True, slots=True)
class Hit:
    entry: Entry
    how: Literal["hit", "semantic"]


@dataclass(frozen=True, slots=True)
class Follow:
    flight: Flight  # joined: to be left


@dataclass(frozen=True, slots=True)
class Lead:
    """Somebody must be asked; what comes of it is to be recorded, and given to `finish` or to `lose`."""

    question: Question
    generations: tuple[int, ...] | None  # None: it is not kept
    flight: Flight | None
    recorder: Recorder


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known of an answer beside its bytes."""

    model: str  # as the server calls it
    usage: UsageCount
    now: float  # Unix time

    def entry(self, lead: Lead) -> Entry | None:
        return lead.recorder.entry(lead.question, self.usage, self.model, self.now)


@dataclass(frozen=True, slots=True)
class Bypass:
    """Not the cache's business."""


Lookup = Hit | Follow | Lead | Bypass
# Of which tier and tenant, what became of a request, and the tokens and dollars that it did not take.
Count = Callable[[str, str, Outcome, int, float], None]


def _uncounted(tier: str, tenant: str, outcome: Outcome, tokens: int, dollars: float) -> None:
    """Nobody wants to know."""


class ResponseCache:
    """The event loop's."""

    def __init__(
        self, shelf: Shelf, *, ttl: float, semantic: Semantic | None = None, count: Count = _uncounted
    ) -> None:
        """`ttl`: seconds an answer is kept."""
        self.shelf = shelf
        self.semantic = semantic
        self.ttl = ttl
        self.count = count
        self.flights = Flights()
        self._writing: set[asyncio.Task[None]] = set()

    async def lookup(self, exchange: Exchange, question: Question | None, wishes: Wishes) -> Lookup:
        """What becomes of this request. `question` None: it may not be kept."""
        if question is None or not wishes.store or not (question.deterministic or self._similar(question)):
            return Bypass()
        shares = question.deterministic and not exchange.inquiry.running_usage
        if shares and wishes.read and (flight := self._join(exchange, question)) is not None:
            return flight
        found = await self.shelf.get(question.key, question.asker)
        if wishes.read:
            if (entry := self._young(found.entry, wishes)) is not None:
                return Hit(entry, "hit" if question.deterministic else "semantic")
            if self._similar(question) and (hit := await self._find(question, wishes)) is not None:
                return hit
            # Somebody may have begun in the meantime.
            if shares and (flight := self._join(exchange, question)) is not None:
                return flight
        leads = self.flights.lead(question.key, exchange) if shares else None
        return Lead(question, found.generations, leads, Recorder(leads))

    def finish(self, lead: Lead, exchange: Exchange) -> None:
        """Nobody is asked any more. To be called once, unless `lose` is."""
        if not lead.recorder.complete:  # it was taken back, and somebody else answers
            self.lose(lead)
            return
        facts = _Facts(exchange.upstream_model, replace(exchange.delivered), self.shelf.now)
        # Who answered must be who would have: a request that was passed on is somebody else's.
        question = lead.question
        same = exchange.tier == question.asker.tier and exchange.operation.asks == question.operation
        keep = same and not exchange.unmarked
        if keep and lead.recorder.size > LARGE and len(self._writing) < MAX_WRITES:
            self._beside(self._read(lead, facts))
        else:
            self._landed(lead, facts, facts.entry(lead) if keep else None)

    def lose(self, lead: Lead) -> None:
        """It was not answered to the end."""
        if lead.flight is not None:
            lead.flight.lose()
        self._end(lead)

    def saved(self, exchange: Exchange, outcome: Outcome, entry: Entry | None) -> None:
        """Count a request, and what it would have cost to have it answered."""
        tokens, dollars = 0, 0.0
        if entry is not None:
            usage = entry.usage
            tokens = usage.prompt + usage.completion
            if exchange.price is not None:
                dollars = exchange.price.cost(usage.prompt, usage.cached, usage.completion) / DOLLAR
        self.count(exchange.tier, exchange.caller.tenant, outcome, tokens, dollars)

    async def invalidate(self, tenant: str | None = None, model: str | None = None) -> None:
        """Give nothing again that was kept so far: of a tenant, of a model, of both together, or at all.
        Raises CacheStoreError when the store does not answer."""
        self.flights.end_all()
        await self.shelf.invalidate(tenant, model)

    async def settle(self) -> None:
        """Wait until what was answered is kept."""
        while self._writing:
            await asyncio.wait(self._writing)

    async def close(self) -> None:
        await self.settle()
        if self.semantic is not None:
            self.semantic.close()
        await self.shelf.close()

    def _similar(self, question: Question) -> bool:
        return self.semantic is not None and question.partition is not None

    def _join(self, exchange: Exchange, question: Question) -> Follow | Hit | None:
        flight = self.flights.join(question.key, stream=exchange.inquiry.stream)
        if flight is None or flight.entry is None:
            return None if flight is None else Follow(flight)
        flight.leave()  # all of it is here, and only on its way to the store
        return Hit(flight.entry, "hit")

    def _young(self, entry: Entry | None, wishes: Wishes) -> Entry | None:
        if entry is None or wishes.max_age is None:
            return entry
        return entry if self.shelf.now - entry.created <= wishes.max_age else None

    async def _find(self, question: Question, wishes: Wishes) -> Hit | None:
        assert self.semantic is not None
        assert question.partition is not None
        try:
            key = await self.semantic.find(question.partition, question.text)
        except Exception:  # an embedding that fails costs a hit, not the request
            logger.exception("The cache could not look for a question that says the same.")
            return None
        if key is None:
            return None
        found = await self.shelf.get(key, question.asker)
        if found.entry is None and found.generations is not None:
            # It would stand before others that are still kept.
            await self.semantic.forget(question.partition, key)
        entry = self._young(found.entry, wishes)
        return None if entry is None else Hit(entry, "semantic")

    async def _read(self, lead: Lead, facts: _Facts) -> None:
        """A long answer, away from the event loop."""
        entry = None
        try:
            entry = await asyncio.to_thread(facts.entry, lead)
        finally:
            self._landed(lead, facts, entry)

    def _landed(self, lead: Lead, facts: _Facts, entry: Entry | None) -> None:
        if lead.flight is not None:
            lead.flight.land(entry, facts.usage)
        if entry is None or lead.generations is None or len(self._writing) >= MAX_WRITES:
            self._end(lead)
        else:
            # Beside the exchange: its connection waits for no store. Until then it can still be followed.
            self._beside(self._write(lead, entry, lead.generations))

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, lead: Lead, entry: Entry, generations: tuple[int, ...]) -> None:
        question = lead.question
        try:
            kept = await self.shelf.put(question.key, entry, self.ttl, generations)
            # What was cut off, or calls a tool, answers its very own question only.
            if kept and entry.ended and self.semantic is not None and question.partition is not None:
                await self.semantic.note(question.partition, question.text, question.key)
        finally:
            self._end(lead)

    def _end(self, lead: Lead) -> None:
        if lead.flight is not None:
            self.flights.end(lead.flight)
