"""A request's way from its body to a settled answer: find, size, reserve, queue, place, answer, settle."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from penstock.config import TenantConfig
from penstock.config.tiers import AUTO
from penstock.errors import InvalidRequestError, PenstockError
from penstock.gateway import recording
from penstock.gateway.accounts import Caller, Hold, Price
from penstock.gateway.accounts.accounts import Outcome
from penstock.gateway.accounts.price import FREE
from penstock.gateway.attempts import MAX_DEATHS, Answering, have_answered, uncancel
from penstock.gateway.backends import BackendError
from penstock.gateway.cache.serving import answered
from penstock.gateway.call import Call, ClientGoneError
from penstock.gateway.deployment import Deployment
from penstock.gateway.exchange import PICO, Exchange
from penstock.gateway.inquiry import Inquiry
from penstock.gateway.queue import CLASS_HEADER, LEVELS, QueueRefusal, ServiceClass, choose_class
from penstock.gateway.routing.watching import EscalatedError
from penstock.gateway.sizing import smaller
from penstock.gateway.state import Gateway
from penstock.observe.record import MAX_NAME, Phase, RequestRecord
from penstock.protocol.decode import shown
from penstock.protocol.errors import RATE_LIMIT, UNAVAILABLE, HTTPError, retry
from penstock.protocol.openapi import Operation
from penstock.protocol.shapes import UsageCount

DEADLINE_HEADER: Final = "x-penstock-deadline-ms"
DEADLINE_EXCEEDED: Final = "deadline_exceeded"
MAX_DEADLINE_MS: Final = 24 * 3600 * 1000
_CLASS: Final = CLASS_HEADER.encode()
_DEADLINE: Final = DEADLINE_HEADER.encode()


async def ask(gateway: Gateway, call: Call, operation: Operation, caller: Caller | None = None) -> None:
    """Answer one request for a model, or raise what the client is to be told; either way it is recorded.
    `caller`: None for whoever's key it brings."""
    record = recording.begin(call, operation, gateway.tracing)
    try:
        if caller is None:
            caller = gateway.keys.check(call.headers)
        await _asked(gateway, call, operation, caller, record)
    except BaseException as error:
        recording.failed(record, error, started=call.status != 0)
        raise
    finally:
        record.status, record.blocked = record.status or call.status, call.blocked
        gateway.recorder.finish(record)


async def _asked(
    gateway: Gateway, call: Call, operation: Operation, caller: Caller, record: RequestRecord
) -> None:
    record.tenant, record.inside = caller.tenant, caller.inside
    gateway.check_open()
    inquiry = Inquiry(operation.asks, await call.body())
    record.model, record.stream = (inquiry.model or "")[:MAX_NAME], inquiry.stream
    exchange = Exchange(call, operation, inquiry, caller, record.arrived, record)
    with gateway.exchanging(exchange):
        try:
            await _served(gateway, exchange)
        except asyncio.CancelledError:
            if exchange.aborted is None:
                raise
            uncancel()
            await _failed(gateway, exchange, exchange.aborted)
        except Exception as error:
            await _failed(gateway, exchange, error)


async def _failed(gateway: Gateway, exchange: Exchange, error: BaseException) -> None:
    if isinstance(error, QueueRefusal):
        code = "queue_full" if error.reason == "full" else DEADLINE_EXCEEDED
        kind = RATE_LIMIT if error.status == 429 else UNAVAILABLE
        headers = retry(error.retry_after)
        error = HTTPError(error.status, str(error), code=code, type=kind, headers=headers)
    recording.failed(exchange.record, error, started=exchange.started)
    if not exchange.started or isinstance(error, ClientGoneError):
        raise error
    await exchange.fail_stream(error)
    if not isinstance(error, PenstockError):
        raise error


async def _served(gateway: Gateway, exchange: Exchange) -> None:
    found = gateway.find(exchange.inquiry.model, exchange.caller)
    exchange.model = exchange.inquiry.model or (found.name if found is not None else AUTO)
    tenant = gateway.tenant(exchange.caller)
    headers = exchange.call.headers
    header = headers.get(_CLASS)
    service_class = choose_class(
        tenant.service_class,
        service_tier=exchange.inquiry.service_tier,
        header=None if header is None else header.decode("latin-1"),
    )
    exchange.priority = LEVELS[service_class]
    record = exchange.record
    record.model, record.service_class = exchange.model, service_class
    exchange.deadline = _deadline(headers.get(_DEADLINE), exchange.arrived)
    if exchange.deadline is not None:
        gateway.end_at_deadline(exchange, exchange.deadline)
    recording.admitted(record, record.arrived)
    account = _Account(gateway, exchange, tenant)
    outcome: Outcome = "failed"
    try:
        chain = await _chain(gateway, exchange, tenant, found)
        await _Asking(gateway, exchange, tenant, service_class, account).along(chain)
        outcome = "ok"
    except QueueRefusal:
        outcome = "refused"
        raise
    except asyncio.CancelledError:
        if isinstance(exchange.aborted, ClientGoneError):
            outcome = "aborted"
        elif isinstance(exchange.aborted, HTTPError):  # its deadline has passed
            outcome = "refused"
        raise
    finally:
        exchange.done = True
        account.settle(outcome)


async def _chain(
    gateway: Gateway, exchange: Exchange, tenant: TenantConfig, found: Deployment | None
) -> list[Answering]:
    """Who is asked, one after the other until somebody answers. `found`: None where that is to be chosen."""
    if found is not None:
        fallbacks = gateway.fallbacks(found, exchange.caller)
        return [Answering(deployment) for deployment in (found, *fallbacks)]
    assert gateway.orchestrator is not None, "only a ladder makes auto a model"
    allowed = gateway.routable(exchange.caller)
    routing = Phase("route", time.monotonic(), 0.0, failed=True)
    exchange.record.phases.append(routing)
    route = exchange.route = await gateway.orchestrator.route(exchange, tenant, allowed)
    routing.end, routing.detail, routing.failed = time.monotonic(), route.decision.chosen, False
    exchange.record.reason = route.decision.reason
    return [
        Answering(tier.deployment, tier, smaller(tier.config.max_tokens, route.caps.get(tier.name)))
        for tier in route.steps
    ]


class _Asking:
    """One request on its way along a chain of models, until one of them answers."""

    def __init__(
        self,
        gateway: Gateway,
        exchange: Exchange,
        tenant: TenantConfig,
        service_class: ServiceClass,
        account: _Account,
    ) -> None:
        self._gateway = gateway
        self._exchange = exchange
        self._tenant = tenant
        self._class = service_class
        self._account = account
        self._doubtful: tuple[Answering, EscalatedError] | None = None  # whose answer was taken back

    async def along(self, chain: list[Answering]) -> None:
        exchange = self._exchange
        failure: Exception | None = None  # of the last that could have answered
        while chain:
            answering, *rest = chain
            chain = rest
            try:
                await self._asked(answering, rest)
                return
            except asyncio.CancelledError:
                if not await self._made_do_in_time():
                    raise
                return
            except EscalatedError as escalated:
                exchange.record.escalations += 1
                self._doubtful = answering, escalated
                chain = self._above(answering, rest)  # not down: those are doubted even more
            except (BackendError, QueueRefusal) as error:
                failure = error
                if exchange.started or exchange.deaths >= MAX_DEATHS:
                    raise
                if not rest and not await self._made_do():
                    raise
                if rest:
                    self._passed_over(answering, rest[0], error)
            except (HTTPError, InvalidRequestError) as error:
                if exchange.started:
                    raise
                if failure is None and not (rest and answering.passes(error)):
                    if not await self._made_do():
                        raise
                    return
                # What is right for the model it was meant for is not wrong because this one cannot take it.
                if rest:
                    self._passed_over(answering, rest[0], error)
                elif not await self._made_do():
                    raise failure or error from error

    def _passed_over(self, answering: Answering, other: Answering, error: Exception) -> None:
        self._exchange.record.fallbacks += 1
        self._gateway.passed_over(self._exchange, answering.name, other.name, error)

    async def _made_do(self) -> bool:
        """Whether the answer that was taken back could be given after all, since nobody has a better one."""
        if self._doubtful is None or not self._doubtful[1].kept:
            return False
        answering, escalated = self._doubtful
        taken = escalated.spent
        self._account.reserve(answering, taken.prompt, taken.completion)  # at its own price again
        await escalated.give()
        return True

    async def _made_do_in_time(self) -> bool:
        """The same for a request that is ended at its deadline while a better answer is waited for."""
        exchange = self._exchange
        late = exchange.aborted
        if not isinstance(late, HTTPError) or late.code != DEADLINE_EXCEEDED or exchange.started:
            return False
        if self._doubtful is None or not self._doubtful[1].kept:
            return False
        exchange.aborted = None
        uncancel()
        if exchange.left:
            raise ClientGoneError
        return await self._made_do()

    def _above(self, answering: Answering, rest: list[Answering]) -> list[Answering]:
        """Those who may be asked for a better answer than this one's."""
        orchestrator = self._gateway.orchestrator
        if answering.tier is None or orchestrator is None:
            return []
        return [
            each for each in rest if each.tier is not None and orchestrator.above(each.tier, answering.tier)
        ]

    async def _asked(self, answering: Answering, rest: list[Answering]) -> None:
        """Have one of them answer: from the cache, or itself, perhaps with a second look at what it says.
        `rest`: who is next in line."""
        gateway, exchange, above = self._gateway, self._exchange, self._above(answering, rest)

        async def go() -> None:
            await have_answered(
                gateway,
                exchange,
                self._tenant,
                self._class,
                answering,
                self._account.reserve,
                last=not rest,
            )

        async def watched() -> None:
            if exchange.route is None or gateway.orchestrator is None:
                await go()
            else:
                look = bool(above) and self._doubtful is None
                await gateway.orchestrator.watched(exchange, answering.tier, go, second_look=look)

        exchange.tier = answering.name
        if gateway.cache is None:
            await watched()
            return
        answering.put(exchange)
        how = await answered(
            gateway.cache,
            exchange,
            self._tenant,
            answering.deployment,
            watched,
            lambda: self._account.admit(answering),
            tier=answering.name,
            max_tokens=answering.max_tokens,
        )
        if exchange.route is not None:
            exchange.route.cached = how in ("hit", "semantic", "shared")


class _Account:
    """The tenant's account, opened with the first model that is tried, settled for the one that answered."""

    def __init__(self, gateway: Gateway, exchange: Exchange, tenant: TenantConfig) -> None:
        self._gateway = gateway
        self._exchange = exchange
        self._tenant = tenant
        self._hold: Hold | None = None

    def reserve(self, answering: Answering, prompt: int, output: int) -> None:
        """For an answer of this one, at its price."""
        self._open(answering, answering.price, prompt, output)

    def admit(self, answering: Answering) -> None:
        """For an answer that takes nothing, since it is there already."""
        self._open(answering, FREE, 0, 0)

    def _open(self, answering: Answering, price: Price | None, prompt: int, output: int) -> None:
        exchange, now = self._exchange, time.monotonic()
        exchange.tier, exchange.price = answering.name, answering.price
        exchange.served_by = model = answering.deployment.name
        if self._hold is not None:
            self._gateway.accounts.reserve_again(self._hold, model, price, prompt, output, now)
            return
        self._hold = self._gateway.accounts.reserve(
            exchange.caller, self._tenant, model, price, prompt, output, now
        )
        exchange.headers += self._hold.headers()

    def settle(self, outcome: Outcome) -> None:
        exchange, families = self._exchange, self._gateway.metrics.families
        if self._hold is None:
            recording.describe(exchange.record, exchange, UsageCount(), 0.0)
            self._gateway.routed(exchange, outcome, UsageCount(), 0)
            return
        usage = exchange.billed()
        cost = self._gateway.accounts.settle(
            self._hold, usage, outcome, time.monotonic(), saved=exchange.saved
        )
        recording.describe(exchange.record, exchange, usage, cost / PICO)
        self._gateway.routed(exchange, outcome, usage, cost)
        if exchange.first_byte:
            families.first_byte.labels(exchange.served_by).observe(exchange.first_byte - exchange.arrived)


def _deadline(header: bytes | None, arrived: float) -> float | None:
    if header is None:
        return None
    text = header.decode("latin-1").strip()
    # Longer than this is not within the bounds, or not a number that anybody means.
    digits = text if len(text) <= 12 and text.isascii() and text.isdigit() else "0"
    if not 0 < int(digits) <= MAX_DEADLINE_MS:
        raise InvalidRequestError(
            f"{DEADLINE_HEADER} must be a number of milliseconds from 1 to {MAX_DEADLINE_MS}, "
            f"got {shown(text)}.",
            param=DEADLINE_HEADER,
        )
    return arrived + int(digits) / 1000
