"""The quality monitor as it runs: some answers of the lower tiers are checked, one after the other."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from penstock.aio.books import book_verdict
from penstock.aio.choose import shares
from penstock.aio.lengths import OutputLengths
from penstock.aio.monitor import Sampler, gain
from penstock.aio.predictor import Predictor
from penstock.config import MonitorConfig, TenantConfig
from penstock.errors import PenstockError
from penstock.gateway.accounts.price import DOLLAR
from penstock.gateway.exchange import Exchange
from penstock.gateway.routing.checking import AskInside, Check, Checked, checked
from penstock.gateway.routing.judging import PresentEncoder
from penstock.gateway.routing.learning import Learning, as_good
from penstock.gateway.routing.router import Route, Router
from penstock.gateway.routing.sampled import AnswerTap
from penstock.gateway.routing.tier import Tier
from penstock.gateway.store.routes import RouteLedger
from penstock.gateway.store.verdicts import VerdictRow
from penstock.observe.metrics import Families

logger = logging.getLogger("penstock.routing")

REFRESH_SECONDS: Final = 2.0  # how old the knowledge of other processes' verdicts may be
LEARN_SECONDS: Final = 30.0


class Monitor:
    """The event loop's. `share`: this is one of so many processes, each with its part of the money."""

    def __init__(
        self, learning: Learning, ledger: RouteLedger, lengths: OutputLengths, families: Families, share: int
    ) -> None:
        self._learning = learning
        self._ledger = ledger
        self._lengths = lengths
        self._families = families
        self._share = share
        self._config = MonitorConfig(enabled=False)
        self._sampler = Sampler(0.0, 0, ())
        self._router: Router | None = None
        self._checks: deque[Check] = deque()
        self._wake = asyncio.Event()
        self._encoder = PresentEncoder()

    def configure(self, config: MonitorConfig, router: Router | None) -> None:
        self._router = router
        steps = [] if router is None else router.steps
        names = config.tiers or tuple(tier.name for tier in steps[: len(steps) // 2])
        if config != self._config or frozenset(names) != self._sampler.tiers:
            budget = round(config.daily_budget * DOLLAR) // self._share
            spent = self._learning.spent_today() // self._share
            self._sampler = Sampler(config.share, budget, names, spent=spent)
        self._config = config

    # ------------------------------------------------------------ what is checked

    def watch(self, exchange: Exchange, route: Route, tier: Tier) -> AnswerTap | None:
        """Before a tier answers: whether to keep what it says, for a check."""
        if not self._config.enabled:
            return None
        expert = route.decision.candidates[-1]
        for below in self._skipped(route, tier):
            low = route.decision.candidate(below)
            cost = expert.cost + (low.cost if low is not None else 0)
            self._draw(route, below, cost, probe=True)
        if self._draw(route, tier.name, expert.cost):
            return AnswerTap(exchange.tap)
        return None

    def _skipped(self, route: Route, tier: Tier) -> Sequence[str]:
        """Tiers that are not asked such questions any more: some are, to see whether they have recovered."""
        steps = [] if self._router is None else self._router.steps
        region = route.decision.region
        return [
            below.name
            for below in steps
            if below is not tier
            and below.name in self._sampler.tiers
            and self._learning.closed(below.name, region)
        ]

    def _draw(self, route: Route, tier: str, cost: int, *, probe: bool = False) -> bool:
        # What is asked of a tier that was skipped is no predictor's decision.
        factor = self._learning.checks("" if probe else route.decision.model_version)
        sample = self._sampler.take(
            tier, draw=random.random(), cost=cost, now=time.time(), probe=probe, factor=factor
        )
        if sample is not None:
            route.samples.append(sample)
        return sample is not None

    def submit(self, exchange: Exchange, route: Route, tenant: TenantConfig, tokens: int) -> None:
        """A request has ended: what was drawn of it is checked, if there is something to check."""
        for sample in route.samples:
            answer = None
            if not sample.probe:
                heard = route.tap.heard(exchange.operation.asks) if route.tap is not None else None
                if heard is None or sample.tier != route.decision.answered:
                    self._sampler.settle(sample, 0)
                    continue
                answer = heard
            self._checks.append(
                Check(
                    sample=sample,
                    route=route,
                    operation=exchange.asked[0].asks,
                    body=exchange.sent.encode(),
                    question=route.query.ask,
                    answer=answer,
                    tokens=tokens,
                    keep_text=tenant.keep_text,
                )
            )
            self._wake.set()
        route.samples = []

    # ------------------------------------------------------------ checking

    async def run(self, ask: AskInside) -> None:
        """Until it is cancelled: check what has been drawn, follow other processes, learn."""
        learned = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            try:
                if self._router is not None:
                    await self._round(ask)
                    if time.monotonic() - learned >= LEARN_SECONDS:
                        learned = time.monotonic()
                        await self._learning.learn()
            except PenstockError as error:
                logger.error("The quality of answers cannot be followed: %s", error)
                await asyncio.sleep(REFRESH_SECONDS)
            except Exception:  # checks are nobody's request: they must not end with one that goes wrong
                logger.exception("An answer could not be checked.")
                await asyncio.sleep(REFRESH_SECONDS)

    async def _round(self, ask: AskInside) -> None:
        self._wake.clear()
        while self._checks:
            await self._check(self._checks.popleft(), ask)
        await self._learning.refresh()

    async def _check(self, check: Check, ask: AskInside) -> None:
        assert self._router is not None
        expert, cost = self._router.steps[-1], 0
        try:
            embed = await self._encoder.embed()
            result = await checked(check, expert.name, ask, embed, self._config.rubric)
            cost = result.cost
        finally:
            self._sampler.settle(check.sample, cost)
        decision, tier = check.route.decision, check.sample.tier
        outcome = "failed" if result.verdict is None else result.verdict.outcome
        self._families.verdicts.labels(tier, outcome).inc()
        self._families.route_dollars.labels("monitor").inc(cost / DOLLAR)
        day = time.strftime("%Y-%m-%d", time.gmtime(decision.at))
        tokens = (0, 0) if check.sample.probe else (result.tokens, result.expert_tokens)
        self._ledger.add(
            book_verdict(decision.tenant, day, tier, outcome, cost, *tokens, probe=check.sample.probe)
        )
        if result.tokens and result.expert_tokens:
            self._lengths.pair(tier, result.tokens, result.expert_tokens)
        row = self._row(result, expert)
        if row is not None:
            await self._learning.add(row)

    def _row(self, result: Checked, expert: Tier) -> VerdictRow | None:
        """A verdict with its circumstances; None if there is none, or its tier has gone."""
        check, verdict, router = result.check, result.verdict, self._router
        tier, decision = check.sample.tier, check.route.decision
        candidate = decision.candidate(tier)
        model = None if router is None else router.model_of(tier)
        if verdict is None or router is None or candidate is None or model is None:
            return None
        raters = self._learning.raters
        good = verdict.outcome != "expert_better"
        champion = self._rated(router, check.route, raters.champion, tier, good)
        challenger: tuple[float | None, float | None] = (None, None)
        if raters.challenger is not None:
            challenger = self._rated(router, check.route, raters.challenger, tier, good)
        decided = raters.challenger is not None and decision.model_version == raters.challenger.version
        return VerdictRow(
            at=int(time.time()),
            tenant=decision.tenant,
            request=decision.request,
            tier=tier,
            model=model,
            expert=expert.name,
            reference=candidate.reference,
            region=decision.region,
            kind=verdict.kind,
            judge=verdict.judge,
            outcome=verdict.outcome,
            score=verdict.score,
            probe=check.sample.probe,
            cost=result.cost,
            arm="challenger" if decided else "champion",
            predicted=champion[0],
            challenged=challenger[0],
            gain=champion[1],
            challenger_gain=challenger[1],
            expert_quality=decision.candidates[-1].quality,
            space=self._learning.space,
            vector=decision.vector,
            question=check.question if check.keep_text else None,
            answer=result.answer if check.keep_text else None,
            expert_answer=result.expert_answer if check.keep_text else None,
        )

    @staticmethod
    def _rated(
        router: Router, route: Route, predictor: Predictor, tier: str, good: bool
    ) -> tuple[float | None, float | None]:
        """What a predictor expected of the tier's answer, and what its own choice would have been worth."""
        candidates = route.decision.candidates
        names = [each.tier for each in candidates]
        costs = dict(zip(names, shares([each.cost for each in candidates]), strict=True))
        rating = router.rating_of(route, predictor)
        worth = gain(router.choice_of(route, rating), tier, good, names[-1], costs, route.decision.rate)
        return as_good(rating.quality[names.index(tier)], rating.quality[-1]), worth
