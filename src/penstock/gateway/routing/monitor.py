"""The quality monitor as it runs: some answers of the lower tiers are checked, a few at once."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from penstock.aio.books import book_verdict
from penstock.aio.choose import shares
from penstock.aio.lengths import OutputLengths
from penstock.aio.monitor import Sampler, gain
from penstock.aio.predictor import Predictor
from penstock.aio.steps import TOO_DEAR
from penstock.config import MonitorConfig, TenantConfig
from penstock.errors import PenstockError
from penstock.gateway.accounts.price import DOLLAR
from penstock.gateway.exchange import Exchange
from penstock.gateway.inquiry import Inquiry
from penstock.gateway.routing.again import again_briefly, most_cost
from penstock.gateway.routing.checking import AskInside, Check, Checked, Purse, Rubric, checked
from penstock.gateway.routing.judging import PresentEncoder
from penstock.gateway.routing.learning import Learning, as_good
from penstock.gateway.routing.router import Route, Router
from penstock.gateway.routing.sampled import AnswerTap
from penstock.gateway.routing.tier import Tier
from penstock.gateway.store.routes import RouteLedger
from penstock.gateway.store.verdicts import VerdictRow
from penstock.observe.catalogue import Families

logger = logging.getLogger("penstock.routing")

REFRESH_SECONDS: Final = 2.0  # how old the knowledge of other processes' verdicts may be
LEARN_SECONDS: Final = 30.0
AT_ONCE: Final = 4  # checks
FAILED: Final = "failed"


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
        self._began = False  # what was spent before is known
        self._checks: asyncio.Queue[Check] = asyncio.Queue()  # as many as the sampler lets wait
        self._encoder = PresentEncoder()

    def configure(self, config: MonitorConfig, router: Router | None) -> None:
        self._router = router
        steps = [] if router is None else router.steps
        names = config.tiers or tuple(tier.name for tier in steps[: len(steps) // 2])
        budget = round(config.daily_budget * DOLLAR) // self._share
        if not self._began and router is not None:
            self._began = True
            spent = self._learning.spent_today() // self._share
            self._sampler = Sampler(config.share, budget, names, spent=spent)
        else:
            self._sampler.configure(config.share, budget, names)
        self._config = config

    # ------------------------------------------------------------ what is checked

    def watch(self, exchange: Exchange, route: Route, tier: Tier) -> AnswerTap | None:
        """Before a tier answers: whether to keep what it says, for a check.

        Requests of the server's own are not checked, or checks would be; nor are those that are held to one
        tier, which nobody else is to see.
        """
        router = self._router
        if not self._config.enabled or router is None or exchange.caller.inside or route.decision.pinned:
            return None
        draws = {name: random.random() for name in (*self._skipped(route, tier), tier.name)}
        drawn = {name: draw for name, draw in draws.items() if self._draws(route, name, draw, tier)}
        asked = self._asked(exchange, route) if drawn else None
        expert = router.steps[-1]
        if asked is None or not _may(route, expert.name):
            return None
        for name, draw in drawn.items():
            cost, probe = most_cost(expert, asked), name != tier.name
            if probe:
                if not _may(route, name):
                    continue
                cost += most_cost(_step(router, name), asked)
            factor = self._factor(route, probe)
            sample = self._sampler.take(
                name, draw=draw, cost=cost, now=time.time(), probe=probe, factor=factor
            )
            if sample is not None:
                route.samples.append(sample)
        return AnswerTap(exchange.tap) if any(not sample.probe for sample in route.samples) else None

    def _skipped(self, route: Route, tier: Tier) -> Sequence[str]:
        """Tiers that are not asked such questions any more: some are, to see whether they have recovered."""
        steps = [] if self._router is None else self._router.steps
        tenant, region = route.decision.tenant, route.decision.region
        return [
            below.name
            for below in steps
            if below is not tier
            and below.name in self._sampler.tiers
            and self._learning.closed(tenant, below.name, region)
        ]

    def _draws(self, route: Route, name: str, draw: float, tier: Tier) -> bool:
        return self._sampler.draws(name, draw, self._factor(route, probe=name != tier.name))

    def _factor(self, route: Route, probe: bool) -> float:
        # What is asked of a tier that was skipped is no predictor's decision.
        return self._learning.checks("" if probe else route.decision.model_version)

    @staticmethod
    def _asked(exchange: Exchange, route: Route) -> Inquiry | None:
        """What the expert is asked for a check; None where it must not be."""
        longest = max(each.output_tokens for each in route.decision.candidates)
        return again_briefly(exchange.sent, longest // exchange.sent.choices)

    def submit(self, exchange: Exchange, route: Route, tenant: TenantConfig, tokens: int) -> None:
        """A request has ended: what was drawn of it is checked, if there is something to check. `tokens`: of
        one of its answers."""
        asked = self._asked(exchange, route) if route.samples else None
        for sample in route.samples:
            heard = None
            if not sample.probe and route.tap is not None and sample.tier == route.decision.answered:
                heard = route.tap.heard(exchange.operation.asks)
            # One that is longer than the expert's may be is not compared with half of that.
            fits = heard is not None and asked is not None and tokens <= (asked.max_tokens or 0)
            if asked is None or not (sample.probe or fits):
                self._sampler.settle(sample, 0)
                continue
            self._checks.put_nowait(
                Check(
                    sample=sample,
                    route=route,
                    asked=asked,
                    question=route.query.ask,
                    answer=heard,
                    tokens=tokens,
                    keep_text=tenant.keep_text,
                )
            )
        route.samples = []

    # ------------------------------------------------------------ checking

    async def run(self, ask: AskInside) -> None:
        """Until it is cancelled: check what has been drawn, and beside that follow other processes, learn."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._checking(ask))
            group.create_task(self._following())

    async def _checking(self, ask: AskInside) -> None:
        while True:
            check = await self._checks.get()
            with _told("An answer could not be checked"):
                await self._check(check, ask)

    async def _following(self) -> None:
        learned = time.monotonic()
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            if self._router is None:
                continue
            with _told("The quality of answers cannot be followed"):
                await self._learning.refresh()
                if time.monotonic() - learned >= LEARN_SECONDS:
                    learned = time.monotonic()
                    await self._learning.learn()

    async def _check(self, check: Check, ask: AskInside) -> None:
        router, purse = self._router, Purse(self._sampler, check.sample)
        result = Checked(check, None)
        try:
            if router is None:  # the ladder has gone
                return
            with _told("An answer could not be checked"):
                embed = await self._encoder.embed()
                rubric = self._rubric(router, check.route)
                result = await checked(check, router.steps[-1].name, ask, purse, embed, rubric)
        finally:
            purse.settle()
        self._book(result, purse.cost)
        # What failed is kept for what it cost: a restart must not forget that.
        if result.verdict is not None or purse.cost:
            row = await asyncio.to_thread(self._row, result, purse.cost, router)
            await self._learning.add(row)

    def _rubric(self, router: Router, route: Route) -> Rubric | None:
        name = self._config.rubric
        if name is None or not _may(route, name):
            return None
        return Rubric(name, partial(most_cost, _step(router, name)))

    def _book(self, result: Checked, cost: int) -> None:
        check = result.check
        decision, tier, probe = check.route.decision, check.sample.tier, check.sample.probe
        outcome = FAILED if result.verdict is None else result.verdict.outcome
        self._families.verdicts.labels(tier, outcome).inc()
        self._families.route_dollars.labels("monitor").inc(cost / DOLLAR)
        day = time.strftime("%Y-%m-%d", time.gmtime(decision.at))
        tokens = (0, 0) if probe else (result.tokens, result.expert_tokens)
        self._ledger.add(book_verdict(decision.tenant, day, tier, outcome, cost, *tokens, probe=probe))
        if result.tokens and result.expert_tokens:
            self._lengths.pair(tier, result.tokens, result.expert_tokens)

    def _row(self, result: Checked, cost: int, router: Router) -> VerdictRow:
        """In a thread: a verdict with its circumstances. Where there is none, or of another ladder, it says
        no more than what was spent."""
        check, verdict, raters = result.check, result.verdict, self._learning.raters
        tier, decision = check.sample.tier, check.route.decision
        candidate = decision.candidate(tier)
        assert candidate is not None, "only tiers that were weighed are drawn"
        champion: tuple[float | None, float | None] = (None, None)
        challenger = champion
        if verdict is not None and [each.tier for each in decision.candidates] == _names(router):
            good = verdict.outcome != "expert_better"
            champion = self._rated(router, check.route, raters.champion, tier, good)
            if raters.challenger is not None:
                challenger = self._rated(router, check.route, raters.challenger, tier, good)
        decided = raters.challenger is not None and decision.model_version == raters.challenger.version
        return VerdictRow(
            at=int(time.time()),
            tenant=decision.tenant,
            request=decision.request,
            tier=tier,
            model=router.model_of(tier) or "",
            expert=_names(router)[-1],
            reference=candidate.reference,
            region=decision.region,
            kind="" if verdict is None else verdict.kind,
            judge=FAILED if verdict is None else verdict.judge,
            outcome="unclear" if verdict is None else verdict.outcome,
            score=0.5 if verdict is None else verdict.score,
            probe=check.sample.probe,
            cost=cost,
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


def _may(route: Route, name: str) -> bool:
    """Whether a tier may be shown this request, and can answer it. What the client would pay for that is no
    matter: it does not."""
    candidate = route.decision.candidate(name)
    return candidate is not None and (candidate.able or candidate.why_not == TOO_DEAR)


def _names(router: Router) -> list[str]:
    return [tier.name for tier in router.steps]


def _step(router: Router, name: str) -> Tier:
    return next(tier for tier in router.steps if tier.name == name)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """What goes wrong is told and goes no further: checks are nobody's request, and go on with the next."""
    try:
        yield
    except PenstockError as error:
        logger.error("%s: %s", what, error)
    except Exception:
        logger.exception("%s.", what)
