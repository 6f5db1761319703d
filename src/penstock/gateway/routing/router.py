"""From a request for `auto` to its way through the tiers: rated, weighed, chosen, and who is next in line."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from penstock.aio import decision as record
from penstock.aio.choose import Ladder, choose, shares
from penstock.aio.decision import Candidate, Decision, PassedOver
from penstock.aio.lengths import USEFUL_TOKENS, OutputLengths
from penstock.aio.monitor import Sample
from penstock.aio.predictor import Predictor, Rating
from penstock.aio.query import Query, query_of
from penstock.aio.steps import TOO_DEAR, held_out
from penstock.config import GatewayConfig, TenantConfig
from penstock.errors import InvalidRequestError
from penstock.gateway.apart import Readers
from penstock.gateway.deployment import Deployment
from penstock.gateway.exchange import Exchange
from penstock.gateway.queue import LEVELS
from penstock.gateway.routing.ladder import targets_out_of_reach
from penstock.gateway.routing.sampled import AnswerTap
from penstock.gateway.routing.tier import ROUTED, Tier, ladder_of
from penstock.gateway.routing.wish import Wish, wish_of
from penstock.gateway.sizing import smaller
from penstock.protocol.decode import decode
from penstock.protocol.errors import UNAVAILABLE, UNAVAILABLE_RETRY_SECONDS, HTTPError, retry

_anything: Final = msgspec.json.Decoder()
_CLASSES: Final = {level: name for name, level in LEVELS.items()}


class Quality(Protocol):
    """What has been seen of the tiers' answers, beside what is predicted of them."""

    def predictor(self, request: str) -> Predictor:
        """The one that decides about this request."""

    def blended(self, tenant: str, tier: str, region: str, predicted: float, expert: float) -> float:
        """The prediction, corrected by how such answers of the tier compared with the expert's."""

    def closed(self, tenant: str, tier: str, region: str) -> bool:
        """Whether the tier is not asked such questions of a tenant's, since it answers them badly."""


@dataclass(slots=True)
class Route:
    """The tiers to ask, in this order, and how that was decided."""

    steps: list[Tier]
    decision: Decision
    wish: Wish
    query: Query
    rating: Rating
    caps: dict[str, int]  # by tier: the most tokens of an answer that the wish can pay
    cached: bool = False  # nobody had to be asked
    samples: list[Sample] = field(default_factory=list)  # what of it is checked against the expert
    tap: AnswerTap | None = None  # hears the answer, if that is to be checked

    def passed_over(self, tier: str, error: Exception) -> None:
        """One that should have answered could not."""
        self.decision.passed_over.append(PassedOver(tier=tier, why=str(error)))


class Router:
    def __init__(
        self,
        config: GatewayConfig,
        deployments: Mapping[str, Deployment],
        quality: Quality,
        lengths: OutputLengths,
    ) -> None:
        """Raises ConfigError for a ladder that cannot be weighed."""
        self._config = config.routing
        self._wait = config.queue.wait  # seconds
        self._quality = quality
        self._lengths = lengths
        self._readers = Readers()
        predictor = quality.predictor("")
        self.steps = ladder_of(config, deployments, predictor.sample.references)
        self._ladders: dict[str, Ladder] = {}  # by the version of the predictor
        self.ladder(predictor)

    def ladder(self, predictor: Predictor) -> Ladder:
        """The thresholds of a predictor, from the queries that it did not learn from."""
        found = self._ladders.get(predictor.version)
        if found is None:
            steps = [tier.step for tier in self.steps]
            found = held_out(steps, predictor).ladder(self._config.caution)
            latest = dict(list(self._ladders.items())[-3:])  # a champion, a challenger, and who was before
            self._ladders = {**latest, predictor.version: found}
        return found

    def warnings(self, config: GatewayConfig) -> Iterator[str]:
        """What is set and cannot be kept, as held-out queries have it."""
        steps = [tier.step for tier in self.steps]
        return targets_out_of_reach(config, steps, self.ladder(self._quality.predictor("")))

    async def route(self, exchange: Exchange, tenant: TenantConfig, allowed: Collection[Deployment]) -> Route:
        """The way of this request. Raises HTTPError where no tier can or may answer it."""
        inquiry = exchange.inquiry
        if inquiry.operation not in ROUTED:
            raise InvalidRequestError(
                f"The model auto cannot be asked through {exchange.operation.path}; name a model.",
                param="model",
                code="unsupported_task",
            )
        names = [tier.name for tier in self.steps]
        wish = wish_of(exchange.call.headers, tenant, self._config.target, names)
        # Not by the request's id, which may be the client's: it would decide who is asked on a trial.
        predictor = self._quality.predictor(secrets.token_hex(8))
        references = [tier.reference for tier in self.steps]

        def rated() -> tuple[Query, Rating, float]:
            began = time.thread_time()
            query = query_of(inquiry.operation, decode(_anything, inquiry.encode()))
            rating = predictor.rate(query, references)
            return query, rating, time.thread_time() - began

        if predictor.quick:
            query, rating, seconds = await self._readers.read(inquiry.size, rated)
        else:
            query, rating, seconds = await asyncio.to_thread(rated)
        caps: dict[str, int] = {}
        candidates = [
            self._candidate(number, exchange, wish, query, rating, allowed, caps)
            for number in range(len(self.steps))
        ]
        ladder = self.ladder(predictor)
        if not ladder.solved(wish.target):
            await asyncio.to_thread(ladder.threshold, wish.target)
        threshold = ladder.threshold(wish.target)
        decision = Decision(
            request=exchange.call.id,
            at=time.time(),
            tenant=exchange.caller.tenant,
            region=rating.region,
            model_version=predictor.version,
            target=wish.target,
            rate=threshold.rate,
            candidates=candidates,
            chosen="",
            forced=wish.forced,
            prompt_tokens=query.prompt_tokens,
            most_output_tokens=(smaller(inquiry.max_tokens, tenant.max_tokens) or 0) * inquiry.choices,
            classifier_seconds=seconds,
            vector=rating.vector.tobytes(),
            text=query.ask if tenant.keep_text else None,
        )
        wanted = self._wanted(decision, exchange, wish)
        return Route(self._way(decision, wanted, wish, exchange), decision, wish, query, rating, caps)

    def _candidate(
        self,
        number: int,
        exchange: Exchange,
        wish: Wish,
        query: Query,
        rating: Rating,
        allowed: Collection[Deployment],
        caps: dict[str, int],
    ) -> Candidate:
        tier, inquiry = self.steps[number], exchange.inquiry
        expected = self._lengths.expected(tier.name, rating.region, inquiry.max_tokens)
        output = expected * inquiry.choices
        barred = "" if tier.deployment in allowed else "this key may not use its model"
        if wish.max_cost is not None:
            pays = tier.pays_for(tier.most_prompt(inquiry), wish.max_cost)
            if pays is not None:
                caps[tier.name] = pays // inquiry.choices
                # What is expected is a guess: it must not refuse what the cap pays a useful part of.
                if caps[tier.name] < min(expected, USEFUL_TOKENS):
                    barred = barred or TOO_DEAR
        return Candidate(
            tier=tier.name,
            reference=tier.reference,
            quality=self._blended(exchange.caller.tenant, tier, rating, number),
            deviation=rating.deviation[number],
            price=tier.step.price,
            output_tokens=output,
            cost=tier.price.cost(query.prompt_tokens, 0, output),
            able=not barred and (why := tier.unable(inquiry.operation, query, output)) is None,
            why_not=barred or why or "",
            barred=bool(barred),
        )

    def _blended(self, tenant: str, tier: Tier, rating: Rating, number: int) -> float:
        predicted = rating.quality[number]
        if tier is self.steps[-1]:
            return predicted
        return self._quality.blended(tenant, tier.name, rating.region, predicted, rating.quality[-1])

    def rating_of(self, route: Route, predictor: Predictor) -> Rating:
        """What another predictor makes of the same request."""
        if predictor.version == route.decision.model_version:
            return route.rating
        return predictor.rate(route.query, [tier.reference for tier in self.steps])

    def model_of(self, name: str) -> str | None:
        """The model that a tier asks."""
        return next((tier.deployment.name for tier in self.steps if tier.name == name), None)

    def choice_of(self, route: Route, rating: Rating) -> str:
        """The tier that another rating of the same request would have led to."""
        candidates = route.decision.candidates
        chosen = choose(
            rating.quality,
            rating.deviation,
            shares([each.cost for each in candidates]),
            route.decision.rate,
            caution=self._config.caution,
            open_=[not each.barred for each in candidates],
        )
        return candidates[chosen].tier

    def _wanted(self, decision: Decision, exchange: Exchange, wish: Wish) -> int:
        """The step to take, able or not: one that is not is passed over later, as the configuration says."""
        candidates = decision.candidates
        if wish.tier is not None:
            decision.chosen = wish.tier
            return next(number for number, each in enumerate(candidates) if each.tier == wish.tier)
        quality = [each.quality for each in candidates]
        deviation = [each.deviation for each in candidates]
        costs = [
            cost * self._shift(tier, exchange)
            for tier, cost in zip(self.steps, shares([each.cost for each in candidates]), strict=True)
        ]
        tenant, region = decision.tenant, decision.region
        closed = [self._quality.closed(tenant, each.tier, region) for each in candidates[:-1]] + [False]
        barred = [each.barred for each in candidates]
        open_ = [not (shut or bar) for shut, bar in zip(closed, barred, strict=True)]
        if not any(open_):  # what answers badly is better than nobody
            open_ = [not bar for bar in barred]
        if not any(open_):
            raise _nobody(candidates)
        rate, caution = decision.rate, self._config.caution
        wanted = choose(quality, deviation, costs, rate, caution=caution, open_=open_)
        free = choose(quality, deviation, costs, rate, caution=caution)
        if free != wanted:
            decision.forced = record.PROMOTED if closed[free] else record.COST_CAP
        decision.chosen = candidates[wanted].tier
        return wanted

    def _way(self, decision: Decision, wanted: int, wish: Wish, exchange: Exchange) -> list[Tier]:
        """Whom to ask, in which order. One that was named is not passed over; where the request has a
        deadline, those that are full beyond it come last."""
        order = [wanted] if wish.tier is not None else self._order(wanted)
        way: list[Tier] = []
        full: list[Tier] = []
        for number in order:
            tier, candidate = self.steps[number], decision.candidates[number]
            why = candidate.why_not or ("it is down" if tier.down() else "")
            if not why and self._full(tier, exchange):
                full.append(tier)
                why = "it is full beyond the request's deadline"
            elif not why:
                way.append(tier)
            if why:
                decision.passed_over.append(PassedOver(tier=tier.name, why=why))
        way += full
        if not way:
            raise _nobody([decision.candidates[number] for number in order])
        # Tiers below the chosen one are a last resort: only those that were passed on the way are told of.
        first = order.index(self.steps.index(way[0]))
        names = {self.steps[number].name for number in order[:first]}
        decision.passed_over = [passed for passed in decision.passed_over if passed.tier in names]
        return way

    @staticmethod
    def _full(tier: Tier, exchange: Exchange) -> bool:
        if exchange.deadline is None:
            return False
        left = exchange.deadline - time.monotonic()
        return tier.full_beyond(exchange.caller.tenant, _CLASSES[exchange.priority], left)

    def _order(self, wanted: int) -> list[int]:
        """The one that is wanted, then as the configuration says, and the other way before nobody at all."""
        up, down = list(range(wanted + 1, len(self.steps))), list(range(wanted - 1, -1, -1))
        ways = {"up": [*up, *down], "down": [*down, *up], "no": []}
        return [wanted, *ways[self._config.pass_over]]

    def _shift(self, tier: Tier, exchange: Exchange) -> float:
        """How much dearer a tier counts since others wait for it."""
        if not self._config.load_weight:
            return 1.0
        wait = tier.deployment.expected_wait(exchange.caller.tenant, _CLASSES[exchange.priority])
        return 1.0 + self._config.load_weight * min(1.0, (wait or 0.0) / self._wait)


def _nobody(candidates: Sequence[Candidate]) -> HTTPError:
    reasons = "; ".join(f"{each.tier}: {each.why_not}" for each in candidates if each.why_not)
    if not reasons:
        return HTTPError(
            503,
            "No tier that could answer this is up now.",
            code="no_tier_available",
            type=UNAVAILABLE,
            headers=retry(UNAVAILABLE_RETRY_SECONDS),
        )
    return HTTPError(400, f"No tier can answer this request. {reasons}.", code="no_tier_able", param="model")
