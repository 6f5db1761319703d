"""What the handlers share: the models, the callers, the accounts, and whether the doors are still open."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penstock.config import GatewayConfig, TenantConfig
from penstock.config.tiers import AUTO, INSIDE
from penstock.errors import EngineUnavailableError, InvalidRequestError
from penstock.gateway.accounts import Accounts, Caller, KeyRing
from penstock.gateway.accounts.accounts import Outcome
from penstock.gateway.accounts.keys import DEFAULT_TENANT
from penstock.gateway.backends import logged
from penstock.gateway.cache.cache import ResponseCache
from penstock.gateway.call import ClientGoneError
from penstock.gateway.deployment import Deployment
from penstock.gateway.discovery import SharedRegistry
from penstock.gateway.drains import Drains
from penstock.gateway.exchange import Exchange
from penstock.gateway.routing.orchestrator import Orchestrator
from penstock.observe.instruments import copy
from penstock.observe.metrics import Metrics
from penstock.observe.page import KeptPage
from penstock.observe.recent import Recent
from penstock.observe.recorder import Recorder
from penstock.observe.request_metrics import RequestMetrics
from penstock.observe.slow_log import SlowRequests
from penstock.observe.trace import Tally
from penstock.protocol.decode import shown
from penstock.protocol.errors import UNAVAILABLE, UNAVAILABLE_RETRY_SECONDS, HTTPError, retry
from penstock.protocol.shapes import UsageCount

if TYPE_CHECKING:
    from penstock.gateway.console import Console
    from penstock.observe.tracing import Tracing

logger = logging.getLogger("penstock.gateway")

TICK_SECONDS: Final = 0.1


class Gateway:
    def __init__(
        self,
        config: GatewayConfig,
        deployments: list[Deployment],
        keys: KeyRing,
        accounts: Accounts,
        metrics: Metrics,
        registry: SharedRegistry,
        drains: Drains,
        orchestrator: Orchestrator | None = None,
        cache: ResponseCache | None = None,
    ) -> None:
        self.keys = keys
        self.orchestrator = orchestrator  # of `model: auto`
        self.cache = cache  # of answers
        self.registry = registry
        self.drains = drains
        self.accounts = accounts
        self.metrics = metrics
        self.slow = SlowRequests(config)
        self.recent = Recent(config.console.recent)  # requests that have ended
        self.recorder = Recorder([self.slow, self.recent, RequestMetrics(metrics)])
        metrics.watch(self.recorder.tell)
        self.tracing: Tracing | None = None
        self.traces = Tally()
        metrics.watch(self._tell_traces)
        self.draining = False
        self.stopped = asyncio.Event()  # it ends: whatever is still streaming must, too
        self.console: Console | None = None
        # The page of metrics; another where several processes have one together.
        self.scrape: Callable[[], Awaitable[bytes]] = KeptPage(metrics.page)
        self.configure(config, deployments)
        self._exchanges: set[Exchange] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tickets = itertools.count()

    def configure(self, config: GatewayConfig, deployments: list[Deployment]) -> None:
        """Serve these from now on; what runs goes on as it began."""
        self.config = config
        self.recorder.enabled = config.metrics.enabled
        self.slow.configure(config)
        self.recent.resize(config.console.recent)
        self.deployments = {deployment.name: deployment for deployment in deployments}
        self.metrics.configure(config, self.deployments)
        self._by_name = {name: deployment for deployment in deployments for name in deployment.names}
        self._allowed: dict[str, list[Deployment]] = {}  # by tenant
        self._tenants = {tenant.name: tenant for tenant in config.tenants}
        self._default = self._tenants.get(DEFAULT_TENANT) or TenantConfig(name=DEFAULT_TENANT)
        self._inside = TenantConfig(name=INSIDE)  # no limits but those of who uses it
        self.drains.apply(deployments)
        if self.console is not None:
            self.console.configure(config.console.enabled)

    # ------------------------------------------------------------ who may what

    def tenant(self, caller: Caller) -> TenantConfig:
        """The caller's limits: its tenant's, or those of everybody who has none of their own."""
        return self._inside if caller.inside else self._tenants.get(caller.tenant, self._default)

    def models(self, caller: Caller) -> list[Deployment]:
        """Those that the caller may use."""
        tenant = self.tenant(caller)
        found = self._allowed.get(tenant.name)
        if found is None:
            found = self._allowed[tenant.name] = [
                deployment
                for deployment in self.deployments.values()
                if not tenant.models or any(name in tenant.models for name in deployment.names)
            ]
        return found

    def find(self, name: str | None, caller: Caller) -> Deployment | None:
        """The model of this name; None where one is to be chosen. A request without a name means the only
        model there is, or a choice where there is a ladder."""
        allowed = self.models(caller)
        if (name == AUTO or (name is None and len(allowed) != 1)) and self.routable(caller):
            return None
        if name is None:
            if len(allowed) == 1:
                return allowed[0]
            names = ", ".join(deployment.name for deployment in allowed)
            raise InvalidRequestError(f"model is required: one of {names}.", param="model")
        found = self._by_name.get(name)
        if found is None:
            names = ", ".join(self.names(caller))
            raise HTTPError(
                404,
                f"The model {shown(name)} is not served here; /v1/models lists {names}.",
                code="model_not_found",
                param="model",
            )
        if found not in allowed:
            raise HTTPError(
                403, f"This key may not use the model {shown(name)}.", code="model_not_allowed", param="model"
            )
        return found

    def names(self, caller: Caller) -> list[str]:
        """What the caller may ask for."""
        known = [name for deployment in self.models(caller) for name in deployment.names]
        return [*known, AUTO] if self.routable(caller) else known

    def named(self, name: str | None, caller: Caller) -> Deployment:
        """One that has to be named: what is asked of it is no answer that any other could give."""
        found = self.find(name, caller)
        if found is None:
            raise InvalidRequestError("model must be the name of a model here, not a choice.", param="model")
        return found

    def routable(self, caller: Caller) -> list[Deployment]:
        """Those that may be chosen for the caller: its own, or all where it may use the choice itself."""
        may = AUTO in self.tenant(caller).models
        found = list(self.deployments.values()) if may else self.models(caller)
        tiers = [] if self.orchestrator is None else self.orchestrator.tiers
        return [deployment for deployment in found if any(deployment is tier.deployment for tier in tiers)]

    def fallbacks(self, deployment: Deployment, caller: Caller) -> list[Deployment]:
        """Who may answer in its place, of those that the caller may use."""
        found = [self._by_name[name] for name in deployment.config.fallbacks if name in self._by_name]
        allowed = self.models(caller)
        return [fallback for fallback in found if fallback in allowed]

    # ------------------------------------------------------------ what runs

    async def drain(self, model: str, replica: str, drained: bool) -> bool:
        """Have a replica take nothing new, or take part again, in all processes; whether that is news."""
        changed = await self.drains.change(model, replica, drained)
        self.drains.apply(self.deployments.values())
        return changed

    def next_ticket(self) -> int:
        return next(self._tickets)

    def check_open(self) -> None:
        if self.draining:
            raise EngineUnavailableError("The server is shutting down; send the request to another one.")

    @contextmanager
    def exchanging(self, exchange: Exchange) -> Iterator[None]:
        """A request is being answered: it ends when its client leaves, and a shutdown waits for it."""
        self._exchanges.add(exchange)
        self._idle.clear()
        stop_watching = exchange.call.when_left(lambda: exchange.abort(ClientGoneError()))
        try:
            yield
        finally:
            exchange.done = True
            if exchange.alarm is not None:
                exchange.alarm.cancel()
            stop_watching()
            self._exchanges.discard(exchange)
            if not self._exchanges:
                self._idle.set()

    def end_at_deadline(self, exchange: Exchange, deadline: float) -> None:
        """An answer that has not begun by then is not wanted any more."""

        def end() -> None:
            if not exchange.started:
                exchange.abort(
                    HTTPError(
                        503,
                        "The answer did not begin before the request's deadline. Allow it more time.",
                        code="deadline_exceeded",
                        type=UNAVAILABLE,
                        headers=retry(UNAVAILABLE_RETRY_SECONDS),
                    )
                )

        exchange.alarm = asyncio.get_running_loop().call_later(deadline - time.monotonic(), end)

    def refuse_new(self) -> None:
        """Take no new work; what runs goes on."""
        self.draining = True

    def running(self) -> Iterator[Exchange]:
        """What is being answered."""
        yield from self._exchanges

    async def idle(self) -> None:
        """Returns when nothing runs."""
        await self._idle.wait()

    def abort_all(self, reason: str) -> None:
        """End everything that runs with an error that gives this reason."""
        self.refuse_new()
        self.stopped.set()
        for exchange in list(self._exchanges):
            exchange.abort(EngineUnavailableError(reason))

    async def keep_time(self) -> None:
        """What happens without anybody asking: deadlines pass, replicas are lost or taken out by another
        process, the ledger is written."""
        flushing: asyncio.Task[bool] | None = None  # beside the rest, which must not wait for a disk
        lag = self.metrics.families.loop_lag.labels()
        while True:
            due = time.monotonic() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            lag.observe(max(0.0, time.monotonic() - due))
            self.recorder.tell()
            self.slow.tick()
            self.drains.apply(self.deployments.values())
            for deployment in self.deployments.values():
                try:
                    deployment.dispatcher.tick()
                except Exception:  # one model's trouble must not stop the clock of all
                    logger.exception("The queue of %s could not be looked after.", deployment.name)
            if self.accounts.due(time.monotonic()) and (flushing is None or flushing.done()):
                flushing = asyncio.create_task(asyncio.to_thread(self._flush))

    def _flush(self) -> bool:
        """In a thread: write what has been counted. What is wrong with one book is not the other's affair."""
        books = [self.accounts.flush]
        if self.orchestrator is not None:
            books.append(self.orchestrator.flush)
        written = True
        for flush in books:
            try:
                written = flush() and written
            except Exception:
                logger.exception("What has been counted could not be written.")
                written = False
        return written

    def not_ready(self) -> str | None:
        """Why no request should be sent here; None when one of the models at least can answer."""
        now = time.monotonic()
        reasons = []
        for deployment in self.deployments.values():
            for member in deployment.dispatcher.members.values():
                if member.look(now):
                    return None
                # Anybody may ask: no names of replicas, which are often their addresses.
                reason = member.reason(now)
                reasons.append(f"a replica of {deployment.name}: {reason}")
        return "; ".join(dict.fromkeys(reasons)) + "." if reasons else "No model has a replica."

    # ------------------------------------------------------------ what is counted

    def _tell_traces(self) -> None:
        rows = (("sent",), self.traces.sent), (("lost",), self.traces.lost)
        copy(self.metrics.families.traces, rows)

    def passed_over(self, exchange: Exchange, name: str, other: str, error: Exception) -> None:
        """Somebody could not answer, and another is asked."""
        self.metrics.families.fallbacks.labels(name, other).inc()
        if exchange.route is not None:
            exchange.route.passed_over(name, error)
        self.log_failure(name, error)

    def routed(self, exchange: Exchange, outcome: Outcome, usage: UsageCount, cost: int) -> None:
        """A request for which a tier was chosen has ended; `cost` in picodollars."""
        if exchange.route is not None and self.orchestrator is not None:
            self.orchestrator.finished(exchange, self.tenant(exchange.caller), outcome, usage, cost)

    def count_cached(self, tier: str, tenant: str, outcome: str, tokens: int, dollars: float) -> None:
        """What the response cache did for a request."""
        families = self.metrics.families
        families.cache.labels(tier, outcome).inc()
        if tokens:
            families.cache_tokens.labels(tier).inc(tokens)
        if dollars:
            families.cache_dollars.labels(tier).inc(dollars)

    def log_failure(self, where: str, error: Exception) -> None:
        logger.warning("The request failed at %s: %s", where, logged(error))
