"""From the parts of all processes to what the console shows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from penstock.aio.balance import balance
from penstock.aio.books import RouteTally
from penstock.gateway.accounts.price import DOLLAR
from penstock.gateway.console.part import ModelPart, Part
from penstock.observe.firing import Watched
from penstock.observe.snapshot import (
    AlertNow,
    Distribution,
    ModelNow,
    Point,
    ReplicaNow,
    RequestNow,
    RoutingNow,
    TierNow,
    Traffic,
)
from penstock.observe.window import WINDOWS, ByModel, Second, Spread, Sums, quantile, total

WINDOW: Final = 60  # seconds that rates and distributions are of
# Of what several processes say of one replica, the worst counts: somebody is not served.
_WORST: Final = ("dead", "unhealthy", "starting", "leaving", "drained", "healthy")

Some = TypeVar("Some", int, float)


def merged(parts: Sequence[Part]) -> Part:
    """As if one process knew all of it."""
    if len(parts) == 1:
        return parts[0]
    models: dict[str, ModelPart] = {}
    for part in parts:
        for model in part.models:
            models[model.name] = _model(models[model.name], model) if model.name in models else model
    routing: dict[str, RouteTally] | None = None
    for part in parts:
        for tier, tally in (part.routing or {}).items():
            routing = {} if routing is None else routing
            routing.setdefault(tier, RouteTally()).add(tally)
    return Part(
        started=min(part.started for part in parts),
        draining=any(part.draining for part in parts),
        sums={seconds: _sums(part.sums.get(seconds, {}) for part in parts) for seconds in WINDOWS},
        history=_history(parts),
        models=list(models.values()),
        tenants=dict(sum((Counter(part.tenants) for part in parts), Counter())),
        recent=sorted((each for part in parts for each in part.recent), key=_ended, reverse=True),
        routing=routing,
        alerts=_alerts(parts),
        # The process that asks the driver says both.
        gpus=next((part.gpus for part in parts if part.gpus), []),
        idle_kv_bytes=next((part.idle_kv_bytes for part in parts if part.gpus), {}),
    )


def _alerts(parts: Sequence[Part]) -> list[AlertNow]:
    """Whatever any of them has seen begin, since the first did."""
    found: dict[tuple[object, ...], AlertNow] = {}
    for alert in (alert for part in parts for alert in part.alerts):
        key = alert.name, *sorted(alert.labels.items())
        if key not in found or alert.since < found[key].since:
            found[key] = alert
    return list(found.values())


def _ended(request: RequestNow) -> float:
    return request.at + request.ms / 1000


def _sums(parts: Iterable[ByModel]) -> ByModel:
    found: ByModel = {}
    for part in parts:
        for model, sums in part.items():
            found.setdefault(model, Sums()).add(sums)
    return found


def _history(parts: Sequence[Part]) -> dict[int, Second]:
    found: dict[int, Second] = {}
    for part in parts:
        for number, second in part.history.items():
            found.setdefault(number, Second()).add(second)
    return dict(sorted(found.items()))


def _model(one: ModelPart, other: ModelPart) -> ModelPart:
    replicas = {replica.name: replica for replica in one.replicas}
    for replica in other.replicas:
        known = replicas.get(replica.name)
        replicas[replica.name] = replica if known is None else _replica(known, replica)
    return ModelPart(
        name=one.name,
        waiting=dict(Counter(one.waiting) + Counter(other.waiting)) or one.waiting,
        growth=one.growth + other.growth,
        replicas=list(replicas.values()),
        healthy=min(one.healthy, other.healthy),
        oom=max(one.oom, other.oom),  # all of them see the same engines
        versions=sorted({*one.versions, *other.versions}),
    )


def _replica(one: ReplicaNow, other: ReplicaNow) -> ReplicaNow:
    worse, _ = sorted((one, other), key=lambda replica: _WORST.index(replica.state))
    return ReplicaNow(
        name=one.name,
        state=worse.state,
        reason=worse.reason,
        requests=one.requests + other.requests,
        tokens=one.tokens + other.tokens,
        capacity=one.capacity,
        running=_most(one.running, other.running),
        waiting=_most(one.waiting, other.waiting),
        kv_usage=_most(one.kv_usage, other.kv_usage),
        prefix_hits=_most(one.prefix_hits, other.prefix_hits),
        drained=one.drained or other.drained,
    )


def _most(*values: Some | None) -> Some | None:
    return max((value for value in values if value is not None), default=None)


# ---------------------------------------------------------------- what it comes to


def traffic(sums: Sums, seconds: float) -> Traffic:
    return Traffic(
        requests=sums.requests / seconds,
        failed=sums.failed / seconds,
        shed=sums.shed / seconds,
        input_tokens=sums.input_tokens / seconds,
        output_tokens=sums.output_tokens / seconds,
        ttft=_distribution(sums.ttft),
        tpot=_distribution(sums.tpot),
        e2e=_distribution(sums.e2e),
    )


def _distribution(spread: Spread) -> Distribution:
    p50, p95, p99 = (quantile(spread, share) for share in (0.5, 0.95, 0.99))
    return Distribution(count=sum(spread.values()), p50=p50, p95=p95, p99=p99)


def model_now(model: ModelPart, sums: Sums, seconds: float) -> ModelNow:
    tokens = sums.input_tokens + sums.output_tokens
    # Many servers do not say how much of a prompt was cached: nothing is known of that, not that it is none.
    told = sums.cached_tokens > 0 or any(replica.prefix_hits is not None for replica in model.replicas)
    usages = [replica.kv_usage for replica in model.replicas if replica.kv_usage is not None]
    return ModelNow(
        name=model.name,
        traffic=traffic(sums, seconds),
        waiting=model.waiting,
        running=sum(replica.requests for replica in model.replicas),
        kv_usage=sum(usages) / len(usages) if usages else None,
        prefix_hits=sums.cached_tokens / sums.input_tokens if told and sums.input_tokens else None,
        dollars_per_million=1e6 * sums.dollars / tokens if tokens and sums.dollars else None,
        replicas=model.replicas,
    )


def points(history: Mapping[int, Second], wall: float) -> list[Point]:
    """`wall`: what the clock says at the monotonic zero."""
    return [
        Point(
            at=wall + number,
            requests=second.requests,
            output_tokens=second.output_tokens,
            ttft_p50=quantile(second.ttft, 0.5),
            ttft_p99=quantile(second.ttft, 0.99),
            waiting=second.waiting,
        )
        for number, second in history.items()
    ]


def routing_now(tallies: Mapping[str, RouteTally], models: Mapping[str, str]) -> RoutingNow:
    """`models`: which one each tier is."""
    sums = balance(tallies)
    return RoutingNow(
        answers=sums.requests,
        spent=sums.spent / DOLLAR,
        always_expert=sums.always_expert / DOLLAR,
        overhead=sums.routing / DOLLAR,
        savings=sums.net / sums.always_expert if sums.always_expert else None,
        tiers=[_tier(name, models.get(name, ""), tally, sums.requests) for name, tally in tallies.items()],
    )


def _tier(name: str, model: str, tally: RouteTally, answers: int) -> TierNow:
    checked = tally.as_good + tally.worse
    return TierNow(
        name=name,
        model=model,
        answers=tally.requests,
        share=tally.requests / answers if answers else None,
        dollars=tally.cost / DOLLAR,
        quality=tally.as_good / checked if checked else None,
        checked=checked,
        escalated=tally.discarded,
    )


def watched(whole: Part) -> list[Watched]:
    """What alerts and objectives are judged by."""
    return [
        Watched(
            name=model.name,
            sums={seconds: sums.get(model.name, Sums()) for seconds, sums in whole.sums.items()},
            replicas=model.replicas,
            healthy=model.healthy,
            waiting=sum(model.waiting.values()),
            growth=model.growth,
            oom=model.oom,
            versions=len(model.versions),
        )
        for model in whole.models
    ]


def gpu_memory(whole: Part) -> dict[int, tuple[int, int]]:
    """Bytes of each GPU that are in use, of how many there are."""
    return {
        gpu.index: (gpu.memory_used - whole.idle_kv_bytes.get(gpu.index, 0), gpu.memory_total)
        for gpu in whole.gpus
    }


def everything(sums: ByModel) -> Sums:
    return total(sums.values())
