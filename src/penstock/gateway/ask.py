"""A request's way from its body to a settled answer: find, size, reserve, queue, place, answer, settle."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Final

from penstock.config import TenantConfig
from penstock.config.tiers import AUTO
from penstock.errors import InvalidRequestError, PenstockError
from penstock.gateway.accounts import Caller, Hold, Price
from penstock.gateway.accounts.accounts import Outcome
from penstock.gateway.backends import Backend, BackendError, NotOfferedError
from penstock.gateway.call import Call, ClientGoneError
from penstock.gateway.deployment import Deployment
from penstock.gateway.dispatch import Member, ReplicaLostError, Waiting
from penstock.gateway.exchange import PICO, Exchange
from penstock.gateway.inquiry import Inquiry
from penstock.gateway.messages import speak
from penstock.gateway.queue import CLASS_HEADER, LEVELS, QueueRefusal, ServiceClass, Ticket, choose_class
from penstock.gateway.resilience import pause
from penstock.gateway.routing.tier import Tier
from penstock.gateway.sizing import smaller
from penstock.gateway.state import Gateway
from penstock.protocol.decode import shown
from penstock.protocol.errors import RATE_LIMIT, UNAVAILABLE, HTTPError, retry
from penstock.protocol.openapi import Operation
from penstock.protocol.shapes import UsageCount

DEADLINE_HEADER: Final = "x-penstock-deadline-ms"
MAX_DEADLINE_MS: Final = 24 * 3600 * 1000
_CLASS: Final = CLASS_HEADER.encode()
_DEADLINE: Final = DEADLINE_HEADER.encode()

# A request that two replicas have not survived is not given to a third.
MAX_DEATHS: Final = 2
# What a model finds out when it reads a request: another tier may be able to take it.
_UNABLE: Final = frozenset({"context_length_exceeded", "prompt_budget_exceeded", "unsupported_task"})


async def ask(gateway: Gateway, call: Call, operation: Operation, caller: Caller) -> None:
    """Answer one request for a model, or raise what the client is to be told."""
    arrived = time.monotonic()
    gateway.check_open()
    inquiry = Inquiry(operation.asks, await call.body())
    exchange = Exchange(call, operation, inquiry, caller, arrived)
    with gateway.exchanging(exchange):
        try:
            await _served(gateway, exchange)
        except asyncio.CancelledError:
            if exchange.aborted is None:
                raise
            _uncancel()
            await _failed(gateway, exchange, exchange.aborted)
        except Exception as error:
            await _failed(gateway, exchange, error)


async def _failed(gateway: Gateway, exchange: Exchange, error: BaseException) -> None:
    if isinstance(error, QueueRefusal):
        code = "queue_full" if error.reason == "full" else "deadline_exceeded"
        kind = RATE_LIMIT if error.status == 429 else UNAVAILABLE
        headers = retry(error.retry_after)
        error = HTTPError(error.status, str(error), code=code, type=kind, headers=headers)
    placed = exchange.upstream_model
    if not placed and isinstance(error, HTTPError):
        gateway.metrics.families.refused.labels(exchange.served_by, error.code).inc()
    if not exchange.started or isinstance(error, ClientGoneError):
        raise error
    await exchange.fail_stream(error)
    if not isinstance(error, PenstockError):
        raise error


@dataclass(frozen=True, slots=True)
class _Answering:
    """A model that may answer, and as which tier of the ladder if the request was routed."""

    deployment: Deployment
    tier: Tier | None = None
    max_tokens: int | None = None  # of one answer, as the tier has it or the request's wish can pay

    @property
    def name(self) -> str:
        return self.deployment.name if self.tier is None else self.tier.name

    @property
    def price(self) -> Price | None:
        return self.deployment.price if self.tier is None else self.tier.price

    def passes(self, error: HTTPError | InvalidRequestError) -> bool:
        """Whether what is wrong with the request may be right for another tier."""
        return self.tier is not None and error.code in _UNABLE


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
    exchange.deadline = _deadline(headers.get(_DEADLINE), exchange.arrived)
    if exchange.deadline is not None:
        gateway.end_at_deadline(exchange, exchange.deadline)
    account = _Account(gateway, exchange, tenant)
    failure: Exception | None = None  # of the last that could have answered
    outcome: Outcome = "failed"
    try:
        chain = await _chain(gateway, exchange, tenant, found)
        for number, answering in enumerate(chain, 1):
            try:
                await _asked_aright(gateway, exchange, tenant, service_class, answering, account)
                outcome = "ok"
                return
            except (BackendError, QueueRefusal) as error:
                failure = error
                if exchange.started or number == len(chain) or exchange.deaths >= MAX_DEATHS:
                    raise
                gateway.passed_over(exchange, answering.name, chain[number].name, error)
            except (HTTPError, InvalidRequestError) as error:
                if exchange.started:
                    raise
                if failure is None:
                    if number == len(chain) or not answering.passes(error):
                        raise
                    gateway.passed_over(exchange, answering.name, chain[number].name, error)
                    continue
                # What is right for the model it was meant for is not wrong because this one cannot take it.
                gateway.log_failure(exchange, answering.name, error)
                if number == len(chain):
                    raise failure from error
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
) -> list[_Answering]:
    """Who is asked, one after the other until somebody answers. `found`: None where that is to be chosen."""
    if found is not None:
        fallbacks = gateway.fallbacks(found, exchange.caller)
        return [_Answering(deployment) for deployment in (found, *fallbacks)]
    assert gateway.orchestrator is not None, "only a ladder makes auto a model"
    route = exchange.route = await gateway.orchestrator.route(
        exchange, tenant, gateway.routable(exchange.caller)
    )
    return [
        _Answering(tier.deployment, tier, smaller(tier.config.max_tokens, route.caps.get(tier.name)))
        for tier in route.steps
    ]


class _Account:
    """The tenant's account, opened with the first model that is tried, settled for the one that answered."""

    def __init__(self, gateway: Gateway, exchange: Exchange, tenant: TenantConfig) -> None:
        self._gateway = gateway
        self._exchange = exchange
        self._tenant = tenant
        self._hold: Hold | None = None

    def reserve(self, answering: _Answering, prompt: int, output: int) -> None:
        exchange, now = self._exchange, time.monotonic()
        exchange.tier, exchange.price = answering.name, answering.price
        exchange.served_by = model = answering.deployment.name
        if self._hold is not None:
            self._gateway.accounts.reprice(self._hold, model, answering.price, now)
            return
        self._hold = self._gateway.accounts.reserve(
            exchange.caller, self._tenant, model, answering.price, prompt, output, now
        )
        exchange.headers += self._hold.headers()

    def settle(self, outcome: Outcome) -> None:
        exchange, families = self._exchange, self._gateway.metrics.families
        if self._hold is None:
            self._gateway.routed(exchange, outcome, UsageCount(), 0)
            return
        usage = exchange.billed()
        cost = self._gateway.accounts.settle(
            self._hold, usage, outcome, time.monotonic(), saved=exchange.saved
        )
        self._gateway.count(exchange, usage, cost / PICO)
        self._gateway.routed(exchange, outcome, usage, cost)
        if exchange.first_byte:
            families.first_byte.labels(exchange.served_by).observe(exchange.first_byte - exchange.arrived)


async def _asked_aright(
    gateway: Gateway,
    exchange: Exchange,
    tenant: TenantConfig,
    service_class: ServiceClass,
    answering: _Answering,
    account: _Account,
) -> None:
    """Have one model answer. Where it turns out that nobody there offers what was asked, ask once more:
    perhaps it can be asked for the same in another way."""
    try:
        await _answered(gateway, exchange, tenant, service_class, answering, account)
    except NotOfferedError:
        asks = exchange.operation.asks
        if exchange.started or any(asks in backend.operations for backend in answering.deployment.backends()):
            raise
        await _answered(gateway, exchange, tenant, service_class, answering, account)


async def _answered(
    gateway: Gateway,
    exchange: Exchange,
    tenant: TenantConfig,
    service_class: ServiceClass,
    answering: _Answering,
    account: _Account,
) -> None:
    """Have one model answer: by the replica that is chosen, or another if that one fails early enough."""
    deployment = answering.deployment
    if answering.tier is not None:
        exchange.ask_as(answering.tier.shaped(exchange.sent))
    speak(exchange, deployment.backends())
    deployment.check_able(exchange)
    vision = deployment.needs_vision(exchange)
    size = await deployment.prepare(exchange, tenant, vision=vision, max_tokens=answering.max_tokens)
    account.reserve(answering, size.prompt, size.output)
    asks = exchange.operation.asks

    def fits(backend: Backend) -> bool:
        return asks in backend.operations and (backend.vision or not vision)

    exchange.delivered.prompt = size.prompt
    query = deployment.query(exchange, size)
    deployment.retries.earn()
    tries = _Tries(gateway, exchange, deployment)
    while True:
        ticket = Ticket(
            id=gateway.next_ticket(),
            tenant=exchange.caller.tenant,
            service_class=service_class,
            weight=tenant.weight,
            tokens=size.prompt + size.output,
            arrived=exchange.arrived,
            # Without a wish of the client's, each model that is tried has its own time.
            deadline=exchange.deadline or time.monotonic() + deployment.longest_wait,
        )
        waiting = Waiting(exchange, ticket, query, size.choices, fits)
        member = await deployment.dispatcher.place(waiting)
        gateway.metrics.families.queued.labels(deployment.name).observe(time.monotonic() - exchange.arrived)
        try:
            await tries.run(waiting, member)
            return
        except BackendError as error:
            if not tries.may_go_on(error):
                raise
            # Nobody else is there, but one who will be: the request waits for it as it did at first. So does
            # what was taken back from a lost replica: moving it adds no load, whatever is left for retries.
            if not isinstance(error, ReplicaLostError) and not deployment.dispatcher.returns(waiting):
                raise
        finally:
            served = exchange.billed()
            deployment.dispatcher.finished(waiting, served.prompt + served.completion)


class _Tries:
    """One request's tries at the replicas of one model, within what is allowed of them."""

    def __init__(self, gateway: Gateway, exchange: Exchange, deployment: Deployment) -> None:
        self._gateway = gateway
        self._exchange = exchange
        self._deployment = deployment
        self._rules = gateway.config.retry
        self._count = 0

    async def run(self, waiting: Waiting, member: Member) -> None:
        """Try replicas that were not tried, until one answers. Raises what the last of them raised."""
        tried: list[str] = []
        dispatcher = self._deployment.dispatcher
        while True:
            tried.append(member.backend.name)
            self._count += 1
            try:
                await _attempt(self._exchange, self._deployment, waiting, member)
                return
            except BackendError as error:
                self._gateway.log_failure(self._exchange, member.backend.name, error)
                self._exchange.deaths += error.died
                if not self.may_go_on(error):
                    raise
                rules = self._rules
                await asyncio.sleep(pause(self._count, rules.backoff, rules.max_backoff, random.random()))
                again = dispatcher.again(waiting, tried)
                if again is None or not self._deployment.retries.spend():
                    if again is not None:
                        dispatcher.leave(again, waiting)
                    raise
                self._gateway.metrics.families.retries.labels(self._deployment.name).inc()
                member = again

    def may_go_on(self, error: BackendError) -> bool:
        """Whether anybody should be asked again after `error`."""
        return (
            not self._exchange.started
            and self._count < self._rules.attempts
            and self._exchange.deaths < MAX_DEATHS
        )


async def _attempt(exchange: Exchange, deployment: Deployment, waiting: Waiting, member: Member) -> None:
    """One replica's try. Its failures, and only its own, count for its health."""
    backend = member.backend
    exchange.upstream_model = backend.upstream_model
    try:
        await backend.answer(exchange)
        now = time.monotonic()
        backend.health.answered(True, now)
        member.blame.answered(exchange.caller.tenant, now)
    except BackendError as error:
        now = time.monotonic()
        if error.at_fault and member.blame.counts(exchange.caller.tenant, now):
            backend.health.answered(error.status == 429, now)  # one that is busy is not broken
        raise
    except asyncio.CancelledError:
        lost = exchange.aborted
        if not isinstance(lost, BackendError):
            raise
        exchange.aborted = None
        _uncancel()
        if exchange.left:
            raise ClientGoneError from None
        raise lost from None
    finally:
        deployment.dispatcher.leave(member, waiting)


def _uncancel() -> None:
    """What was cancelled on purpose goes on as an error."""
    task = asyncio.current_task()
    assert task is not None, "an exchange is answered by a task"
    task.uncancel()


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
