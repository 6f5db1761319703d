"""Answering a request with the cache in between: kept, shared with one on its way, or computed and kept."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from penstock.config import TenantConfig
from penstock.gateway.cache import replay
from penstock.gateway.cache.cache import (
    HEADER,
    Bypass,
    Follow,
    Hit,
    Lead,
    Outcome,
    ResponseCache,
    Wishes,
)
from penstock.gateway.cache.entry import Counted, Entry
from penstock.gateway.cache.flight import Flight, FlightLostError
from penstock.gateway.cache.key import Asker, Question, question_of, says_twice
from penstock.gateway.cache.led import LedCall
from penstock.gateway.deployment import Deployment
from penstock.gateway.exchange import Exchange, Header, decimal
from penstock.observe.record import Phase
from penstock.protocol.errors import SERVER_ERROR, HTTPError

_CONTROL: Final = b"cache-control"
_HOW: Final[dict[Outcome, bytes]] = {
    "hit": b"hit",
    "semantic": b"hit; semantic",
    "shared": b"shared",
    "miss": b"miss",
    "bypass": b"bypass",
}

Go = Callable[[], Awaitable[None]]


async def answered(
    cache: ResponseCache | None,
    exchange: Exchange,
    tenant: TenantConfig,
    deployment: Deployment,
    go: Go,
    admit: Callable[[], None],
    *,
    tier: str = "",
    max_tokens: int | None = None,
) -> Outcome:
    """Have `deployment` answer, as this tier if it is one, or the cache in its place.

    The exchange must have been put in the way in which it is asked. `go` asks; what it raises is raised.
    `admit` opens the tenant's account, without tokens and without a price, for an answer that nobody
    computes; it may refuse, and is called at most once, and never if `go` is. `max_tokens`: a cap.
    """
    if cache is None:
        await go()
        return "bypass"
    looking = Phase("cache", time.monotonic(), 0.0)
    exchange.record.phases.append(looking)
    question = _question(exchange, tenant, deployment, tier, max_tokens) if tenant.cache else None
    wishes = Wishes.of(exchange.call.headers.get(_CONTROL, b""))
    found = await cache.lookup(exchange, question, wishes)
    match found:
        case Hit(entry, how):
            _looked(exchange, looking, how)
            admit()
            await _replay(exchange, entry, how)
            cache.saved(exchange, how, entry)
            return how
        case Follow(flight):
            followed = await _followed(cache, exchange, flight, admit)
            _looked(exchange, looking, "shared" if followed else "miss")
            if followed:
                return "shared"
            # Its own answer it is, and nobody's else: whatever ended the other one may end this one too.
            return await _asked(cache, exchange, go, "miss")
        case Lead():
            _looked(exchange, looking, "miss")
            return await _led(cache, exchange, found, go)
        case Bypass():
            _looked(exchange, looking, "bypass")
            return await _asked(cache, exchange, go, "bypass")


def _looked(exchange: Exchange, looking: Phase, outcome: Outcome) -> None:
    looking.end, looking.detail = time.monotonic(), outcome
    exchange.record.cache = outcome


async def _asked(cache: ResponseCache, exchange: Exchange, go: Go, outcome: Outcome) -> Outcome:
    exchange.say(HEADER, _HOW[outcome])
    await go()
    cache.saved(exchange, outcome, None)
    return outcome


async def _led(cache: ResponseCache, exchange: Exchange, lead: Lead, go: Go) -> Outcome:
    call, exchange.tap = exchange.call, lead.recorder
    if lead.flight is not None:
        exchange.call = LedCall(call, lead.flight)
    try:
        outcome = await _asked(cache, exchange, go, "miss")
    except BaseException:
        cache.lose(lead)
        raise
    finally:
        exchange.call, exchange.tap = call, None
    cache.finish(lead, exchange)
    return outcome


async def _followed(
    cache: ResponseCache, exchange: Exchange, flight: Flight, admit: Callable[[], None]
) -> bool:
    """Give the client the other request's answer. False: it must be asked for."""
    try:
        if exchange.inquiry.stream:
            await _streamed(exchange, flight, admit)
        else:
            entry = await flight.landed()
            if entry is None:
                return False
            admit()
            await _replay(exchange, entry, "shared")
    except FlightLostError:
        if not exchange.started:
            return False
        raise HTTPError(
            502,
            "The answer that this request shared with another broke off; send it again.",
            code="bad_gateway",
            type=SERVER_ERROR,
        ) from None
    finally:
        flight.leave()
    usage, model = Counted.of(flight.usage), flight.leader.upstream_model
    cache.saved(exchange, "shared", flight.entry or Entry(exchange.operation.asks, b"", usage, model, 0.0))
    return True


async def _streamed(exchange: Exchange, flight: Flight, admit: Callable[[], None]) -> None:
    renewed = replay.Renewed(exchange.operation.asks, _delivery(exchange))

    async def begin() -> None:
        if not exchange.started:
            admit()
            exchange.say(HEADER, _HOW["shared"])
            exchange.upstream_model = flight.leader.upstream_model
            await exchange.start_stream()

    async for data in flight.parts(exchange):
        events = renewed.feed(data)
        if events:
            await begin()
            await exchange.write(events)
    await begin()
    renewed.delivery = _delivery(exchange)
    await exchange.end_stream(renewed.closing(msgspec.to_builtins(flight.usage.message())))


async def _replay(exchange: Exchange, entry: Entry, how: Outcome) -> None:
    exchange.say(HEADER, _HOW[how])
    exchange.upstream_model = entry.model
    delivery = _delivery(exchange)
    # No usage is given to the exchange: what nobody computed, nobody pays.
    if not exchange.inquiry.stream:
        charges: list[Header] = [(b"x-penstock-latency-ms", b"%g" % delivery.charges["latency_ms"])]
        if "cost" in delivery.charges:
            charges.append((b"x-penstock-cost", decimal(0.0)))
        await exchange.answer(replay.whole(entry, delivery), headers=charges)
        return
    events = list(replay.stream(entry, delivery))
    await exchange.start_stream()
    for data in events[:-1]:
        await exchange.write(data)
    await exchange.end_stream(events[-1])


def _delivery(exchange: Exchange) -> replay.Delivery:
    charges = {"latency_ms": exchange.latency_ms()}
    if exchange.price is not None:
        charges = {"cost": 0.0, **charges}
    return replay.Delivery(
        id=uuid.uuid4().hex,
        created=int(time.time()),
        model=exchange.model,
        charges=charges,
        include_usage=exchange.inquiry.include_usage,
        running_usage=exchange.inquiry.running_usage,
    )


def _question(
    exchange: Exchange, tenant: TenantConfig, deployment: Deployment, tier: str, max_tokens: int | None
) -> Question | None:
    inquiry, caller = exchange.inquiry, exchange.caller
    data = inquiry.encode()
    try:
        body: Any = msgspec.json.decode(data)
        if says_twice(data, body):
            return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    asker = Asker(
        tenant=caller.tenant,
        tier=tier or deployment.name,
        model=deployment.name,
        salt=caller.salt,
        part=inquiry.cache_salt,
        revision=_revision(deployment, tenant, max_tokens),
    )
    operation = exchange.operation.asks
    return question_of(asker, operation, body, stream=inquiry.stream, name=exchange.model)


def _revision(deployment: Deployment, tenant: TenantConfig, max_tokens: int | None) -> bytes:
    """What the configuration has to do with an answer: one that changes makes other answers."""
    config, served = deployment.config, deployment.served
    return msgspec.json.encode(
        [
            None if served is None else served.fingerprint,
            sorted({f"{backend.kind} {backend.model or ''}" for backend in config.backends}),
            [max_tokens, config.max_tokens, config.prompt_budget, config.context],
            [tenant.max_tokens, tenant.prompt_budget, tenant.trim_history],
        ]
    )
