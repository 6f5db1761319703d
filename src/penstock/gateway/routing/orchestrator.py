"""The orchestrator as it runs: requests are routed, what came of them is booked, and it learns from that."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from penstock.aio.balance import balance
from penstock.aio.books import MILLION, RouteTally, book
from penstock.aio.cascade import TEMPERATURE, heard_whole
from penstock.aio.decision import Attempt, Decision
from penstock.aio.lengths import OutputLengths
from penstock.config import GatewayConfig, RoutingConfig, TenantConfig
from penstock.gateway.accounts.accounts import Outcome
from penstock.gateway.accounts.price import DOLLAR
from penstock.gateway.deployment import Deployment
from penstock.gateway.exchange import Exchange
from penstock.gateway.routing.again import again
from penstock.gateway.routing.checking import CHECK_SECONDS, AskInside, said
from penstock.gateway.routing.learning import Learning
from penstock.gateway.routing.monitor import Monitor
from penstock.gateway.routing.router import Route, Router
from penstock.gateway.routing.tier import Tier
from penstock.gateway.routing.watching import EscalatedError
from penstock.gateway.second_look import Sample, with_second_look
from penstock.gateway.store import Database
from penstock.gateway.store.decisions import DecisionLog
from penstock.gateway.store.routes import RouteLedger, RouteTable
from penstock.observe.metrics import Metrics
from penstock.protocol.shapes import UsageCount

logger = logging.getLogger("penstock.routing")

RECALLED_SECONDS: Final = 30 * 86_400.0  # of books, from which lengths of answers are known at the start


class Orchestrator:
    """One for a process; `configure` gives it another ladder while it goes on knowing what it has learned."""

    def __init__(
        self, learning: Learning, ledger: RouteLedger, metrics: Metrics, ask: AskInside, *, share: int = 1
    ) -> None:
        self._learning = learning
        self._ledger = ledger
        self._families = metrics.families
        self._ask = ask
        self._lengths = OutputLengths()
        self._monitor = Monitor(learning, ledger, self._lengths, metrics.families, share)
        self._config = RoutingConfig()
        self._router: Router | None = None
        self._log: DecisionLog | None = None

    @classmethod
    def open(
        cls, folder: Path | None, metrics: Metrics, ask: AskInside, *, share: int = 1, leads: bool = True
    ) -> Orchestrator:
        """Books and what is learned in `folder`. `share`: this is one of so many processes; one `leads`."""
        table = None if folder is None else RouteTable(Database(folder))
        made = cls(Learning(folder, leads=leads), RouteLedger(table), metrics, ask, share=share)
        if table is not None:
            since = time.strftime("%Y-%m-%d", time.gmtime(time.time() - RECALLED_SECONDS))
            made._lengths.recall(table.totals(since=since))
        return made

    def prepare(self, config: GatewayConfig) -> None:
        """Load what `configure` will need. Raises ConfigError; changes nothing that is in use."""
        if config.tiers:
            self._learning.prepare(config)

    def configure(self, config: GatewayConfig, deployments: Mapping[str, Deployment]) -> None:
        """Raises ConfigError for a ladder that cannot be weighed; then everything stays as it was."""
        if not config.tiers:
            self._router = None
            self._monitor.configure(config.routing.monitor, None)
            return
        names = {name: each.name for each in deployments.values() for name in each.names}
        self._learning.configure(
            config.routing, {tier.name: names[tier.model or ""] for tier in config.tiers}
        )
        router = Router(config, deployments, self._learning, self._lengths)
        self._monitor.configure(config.routing.monitor, router)
        if config.routing.log != self._config.log or self._log is None:
            self.flush()
            self._log = DecisionLog(Path(config.routing.log).expanduser()) if config.routing.log else None
        self._router, self._config = router, config.routing
        for warning in router.warnings(config):
            logger.warning("%s", warning)

    @property
    def tiers(self) -> list[Tier]:
        """Cheapest first; none where nothing is to be chosen."""
        return [] if self._router is None else self._router.steps

    @property
    def since_start(self) -> Mapping[str, RouteTally]:
        """What came of requests since this process began, by tier."""
        return self._ledger.since_start

    def above(self, tier: Tier, other: Tier) -> bool:
        """Whether the one stands higher on the ladder."""
        names = [each.name for each in self.tiers]
        return tier.name in names and other.name in names and names.index(tier.name) > names.index(other.name)

    # ------------------------------------------------------------ one request

    async def route(self, exchange: Exchange, tenant: TenantConfig, allowed: Collection[Deployment]) -> Route:
        assert self._router is not None, "only a ladder makes auto a model"
        route = await self._router.route(exchange, tenant, allowed)
        if exchange.caller.inside:  # that is no client's wish, and nobody decides about it
            return route
        decision, families = route.decision, self._families
        families.routed.labels(decision.chosen, decision.reason).inc()
        families.route_seconds.labels().observe(decision.classifier_seconds)
        return route

    async def watched(
        self, exchange: Exchange, tier: Tier | None, go: Callable[[], Awaitable[None]], *, second_look: bool
    ) -> None:
        """Have a tier answer through `go`. `second_look`: there is a better one to ask if this one does not
        do; then EscalatedError says so."""
        route = exchange.route
        assert route is not None, "it was routed"
        assert tier is not None, "to a tier"
        before = exchange.tap
        route.tap = self._monitor.watch(exchange, route, tier)
        if route.tap is not None:
            exchange.tap = route.tap
        try:
            if not (second_look and self._config.cascade.enabled) or route.decision.pinned:
                await go()
                return
            looked = await with_second_look(
                exchange,
                go,
                self._config.cascade,
                route.query.ask,
                sample=self._sampling(exchange, route, tier),
                usual=self._lengths.usual(tier.name, route.decision.region),
            )
        finally:
            exchange.tap = before
        if looked.escalate:
            self._families.escalated.labels(tier.name).inc()
            raise EscalatedError(route, tier.name, looked)

    def _sampling(self, exchange: Exchange, route: Route, tier: Tier) -> Sample | None:
        """How another answer of the same tier is had, to compare with; none where it could do something."""
        operation = exchange.asked[0].asks
        body = None if route.query.tools else again(operation, exchange.sent.decoded())
        if body is None:
            return None

        async def sample() -> str | None:
            reply = await self._ask(
                operation,
                {**body, "temperature": TEMPERATURE, "seed": None},
                tier=tier.name,
                seconds=CHECK_SECONDS,
            )
            heard = heard_whole(operation, reply.body) if reply.ok else None
            route.decision.cascade.append(
                Attempt(tier=tier.name, cost=reply.cost, why="a further sample", sample=True)
            )
            return None if heard is None else said(heard)

        return sample

    def finished(
        self, exchange: Exchange, tenant: TenantConfig, outcome: Outcome, usage: UsageCount, cost: int
    ) -> None:
        """Book a routed request that has ended, however it did; `cost` in picodollars."""
        route = exchange.route
        assert route is not None, "it was routed"
        if exchange.caller.inside:  # in the books it is a part of the request that it was made for
            return
        decision, tokens = route.decision, usage.completion // exchange.inquiry.choices
        if not route.cached:  # else nobody was asked: there is nothing that routing could have saved
            decision.outcome = outcome
            decision.answered = exchange.tier if exchange.started and outcome != "failed" else ""
            decision.output_tokens, decision.cost = usage.completion, cost
            decision.latency_seconds = time.monotonic() - exchange.arrived
            if usage.prompt:
                decision.prompt_tokens, decision.cached_tokens = usage.prompt, usage.cached
            # What one client has pinned says nothing of what others get who leave the choice to us.
            if outcome == "ok" and decision.answered and not decision.pinned:
                most = decision.most_output_tokens // exchange.inquiry.choices
                self._lengths.add(decision.answered, decision.region, tokens, most or None)
            self._book(decision)
        self._monitor.submit(exchange, route, tenant, tokens)

    def _book(self, decision: Decision) -> None:
        day = time.strftime("%Y-%m-%d", time.gmtime(decision.at))
        tallies = book(decision, day, round(self._config.cpu_price * DOLLAR))
        self._ledger.add(tallies)
        if self._log is not None:
            self._log.add(decision)
        families = self._families
        for passed in decision.passed_over:
            families.passed_over.labels(passed.tier).inc()
        if decision.answered:
            families.route_answers.labels(decision.answered).inc()
        sums = balance({tier: tally for (_, _, tier), tally in tallies.items()})
        money = {
            "spent": sums.spent,
            "always_expert": sums.always_expert,
            "classifier": sums.classifier,
            "cascade": sums.cascade,
        }
        for kind, amount in money.items():
            families.route_dollars.labels(kind).inc(amount / DOLLAR)
        families.route_quality.labels("answered").inc(sums.quality / MILLION)
        families.route_quality.labels("expert").inc(sums.expert_quality / MILLION)

    # ------------------------------------------------------------ in the background

    async def run(self) -> None:
        """Check answers and learn, until it is cancelled."""
        await self._monitor.run(self._ask)

    def flush(self) -> bool:
        """Write the books; False: they could not be, and are kept. May run in a thread."""
        written = self._ledger.flush()
        if self._log is None:
            return written
        try:
            return self._log.flush() and written
        except Exception:  # the log is a help, and no book: whoever writes those goes on
            logger.exception("Some decisions could not be logged, and are left out.")
            return False
