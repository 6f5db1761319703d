"""Having one model answer: a place at one of its replicas, and tries until one of them does."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.config import TenantConfig
from penstock.errors import InvalidRequestError
from penstock.gateway.accounts import Price
from penstock.gateway.backends import Backend, BackendError, NotOfferedError
from penstock.gateway.call import ClientGoneError
from penstock.gateway.deployment import Deployment
from penstock.gateway.dispatch import Member, ReplicaLostError, Waiting
from penstock.gateway.exchange import DiscardedError, Exchange
from penstock.gateway.messages import speak
from penstock.gateway.queue import ServiceClass, Ticket
from penstock.gateway.recording import admitted, attempt_begins, attempt_ended
from penstock.gateway.resilience import pause
from penstock.gateway.routing.tier import Tier
from penstock.gateway.state import Gateway
from penstock.observe.record import Phase
from penstock.protocol.errors import HTTPError

# A request that two replicas have not survived is not given to a third.
MAX_DEATHS: Final = 2
# Of the time until its deadline, a request waits so much for one tier while there is another to ask.
PATIENCE: Final = 0.5
# What a model finds out when it reads a request: another tier may be able to take it.
_UNABLE: Final = frozenset({"context_length_exceeded", "prompt_budget_exceeded", "unsupported_task"})


@dataclass(frozen=True, slots=True)
class Answering:
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

    def put(self, exchange: Exchange, lacking: str = "") -> None:
        """Put the request as this one is asked it; `lacking`: the operation that it turned out not to have,
        whatever its backends are believed to offer by now."""
        if self.tier is not None:
            exchange.ask_as(self.tier.shaped(exchange.sent))
        speak(exchange, self.deployment.backends(), lacking)

    def passes(self, error: HTTPError | InvalidRequestError) -> bool:
        """Whether what is wrong with the request may be right for another tier."""
        return self.tier is not None and error.code in _UNABLE


# Holds on the tenant's account what this one may take: tokens of the prompt, and of all answers together.
Reserve = Callable[[Answering, int, int], None]


async def have_answered(
    gateway: Gateway,
    exchange: Exchange,
    tenant: TenantConfig,
    service_class: ServiceClass,
    answering: Answering,
    reserve: Reserve,
    *,
    last: bool = True,
) -> None:
    """Have one model answer; `last`: there is nobody else to ask. Where it turns out that it does not offer
    what was asked, it is asked once more if the same can be put in another way."""
    answering.put(exchange)
    try:
        await _answered(gateway, exchange, tenant, service_class, answering, reserve, last=last)
    except NotOfferedError:
        lacking = exchange.operation.asks
        if exchange.started:
            raise
        answering.put(exchange, lacking)
        if exchange.operation.asks == lacking:
            raise
        await _answered(gateway, exchange, tenant, service_class, answering, reserve, last=last)


async def _answered(
    gateway: Gateway,
    exchange: Exchange,
    tenant: TenantConfig,
    service_class: ServiceClass,
    answering: Answering,
    reserve: Reserve,
    *,
    last: bool,
) -> None:
    """Have one model answer: by the replica that is chosen, or another if that one fails early enough."""
    deployment, record = answering.deployment, exchange.record
    began = time.monotonic()
    deployment.check_able(exchange)
    vision = deployment.needs_vision(exchange)
    size = await deployment.prepare(exchange, tenant, vision=vision, max_tokens=answering.max_tokens)
    reserve(answering, size.prompt, size.output)
    asks = exchange.operation.asks

    def fits(backend: Backend) -> bool:
        return asks in backend.operations and (backend.vision or not vision)

    exchange.delivered.prompt, record.choices = size.prompt, size.choices
    query = deployment.query(exchange, size)
    deployment.retries.earn()
    tries = _Tries(gateway, exchange, deployment)
    now = admitted(record, began)
    while True:
        ticket = Ticket(
            id=gateway.next_ticket(),
            tenant=exchange.caller.tenant,
            service_class=service_class,
            weight=tenant.weight,
            tokens=size.prompt + size.output,
            arrived=exchange.arrived,
            deadline=_until(exchange, answering, last=last),
        )
        waiting = Waiting(exchange, ticket, query, size.choices, fits)
        queued = Phase("queue", now, 0.0, failed=True)
        record.phases.append(queued)
        try:
            member = await deployment.dispatcher.place(waiting)
            queued.failed = False
        finally:
            queued.end = time.monotonic()
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
            tries.go_on()
            now = time.monotonic()
        finally:
            served = exchange.spent()
            deployment.dispatcher.finished(waiting, served.prompt + served.completion)


def _until(exchange: Exchange, answering: Answering, *, last: bool) -> float:
    """When a request that waits for this one gives up. Without a wish of the client's, each model that is
    tried has its own time; with one, a tier that is not the last leaves some of it to the next."""
    now = time.monotonic()
    if exchange.deadline is None:
        return now + answering.deployment.longest_wait
    if answering.tier is None or last:
        return exchange.deadline
    return now + (exchange.deadline - now) * PATIENCE


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
                self._gateway.log_failure(member.backend.name, error)
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
                self.go_on()
                member = again

    def go_on(self) -> None:
        """Somebody is asked again, at once or when there is a place."""
        self._gateway.metrics.families.retries.labels(self._deployment.name).inc()
        self._exchange.record.retries += 1

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
    if exchange.begun:
        exchange.reset()  # another one's beginning, which was held back
    attempt = attempt_begins(exchange.record, backend.name)
    failed = True
    try:
        await backend.answer(exchange)
        _answered_well(exchange, member)
        failed = False
    except DiscardedError:
        _answered_well(exchange, member)  # that its answer is not wanted is no failure of the replica
        failed = False
        raise
    except BackendError as error:
        now = time.monotonic()
        if error.at_fault and member.blame.counts(exchange.caller.tenant, now):
            backend.health.answered(error.status == 429, now)  # one that is busy is not broken
        raise
    except asyncio.CancelledError:
        lost = exchange.aborted
        if not isinstance(lost, BackendError):
            failed = False
            raise
        exchange.aborted = None
        uncancel()
        if exchange.left:
            raise ClientGoneError from None
        raise lost from None
    finally:
        attempt_ended(exchange.record, attempt, failed=failed)
        deployment.dispatcher.leave(member, waiting)


def _answered_well(exchange: Exchange, member: Member) -> None:
    now = time.monotonic()
    member.backend.health.answered(True, now)
    member.blame.answered(exchange.caller.tenant, now)


def uncancel() -> None:
    """What was cancelled on purpose goes on as an error."""
    task = asyncio.current_task()
    assert task is not None, "an exchange is answered by a task"
    task.uncancel()
