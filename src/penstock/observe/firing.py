"""Which alerts fire now, by the same figures as Prometheus's rules, where nobody has a Prometheus.

Rules that need more than a server remembers of itself (throughput of a usual day, device faults) are
Prometheus's alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.observe.alerts import thresholds
from penstock.observe.alerts.burn import summary
from penstock.observe.alerts.thresholds import BURN_RATES, DAY, LEAST_BAD, Severity, Threshold
from penstock.observe.objectives import Promises
from penstock.observe.promql import span
from penstock.observe.snapshot import AlertNow, ObjectiveNow, ReplicaNow
from penstock.observe.window import Sums, quantile

HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What there is to judge of one model."""

    name: str
    sums: Mapping[int, Sums]  # by seconds of the window
    replicas: Sequence[ReplicaNow] = ()
    healthy: int = 0  # replicas that get requests from every process of the server
    waiting: int = 0
    growth: float = 0.0  # requests a second by which the queue has grown over the last minutes
    oom: int = 0  # steps of the last minutes that lacked memory, and engines that died of it
    versions: int = 1  # that are served at once


@dataclass(frozen=True, slots=True)
class Condition:
    """Something is beyond its bound now; an alert, once it has been for `hold` seconds."""

    name: str
    severity: Severity
    summary: str
    hold: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        return self.name, *sorted(self.labels.values())


class Alarms:
    """Remembers since when each condition has held."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, ...], float] = {}

    def judge(self, conditions: Sequence[Condition], now: float) -> list[AlertNow]:
        """Those that fire; `now` and their `since` are monotonic seconds."""
        self._since = {each.key: self._since.get(each.key, now) for each in conditions}
        order = {"page": 0, "warn": 1, "info": 2}
        firing = [
            AlertNow(
                name=each.name,
                severity=each.severity,
                summary=each.summary,
                since=self._since[each.key] + each.hold,
                labels=dict(each.labels),
            )
            for each in conditions
            if now - self._since[each.key] >= each.hold
        ]
        return sorted(firing, key=lambda alert: (order[alert.severity], alert.since))


def conditions(
    models: Sequence[Watched], promises: Promises, gpu_memory: Mapping[int, tuple[int, int]] | None = None
) -> list[Condition]:
    """What is beyond its bound. `gpu_memory`: bytes in use, of how many there are, by GPU."""
    found = [each for model in models for look in _LOOKS for each in look(model, promises)]
    return found + list(_memory(gpu_memory or {})) + list(_cost(models))


def objectives(models: Sequence[Watched], promises: Promises) -> list[ObjectiveNow]:
    """How each promise fares."""
    return [
        _objective(model, name, bound, promises.target(name))
        for model in models
        for name, bound in promises.of(model.name).bounds()
    ]


def _objective(model: Watched, name: str, bound: float | None, target: float) -> ObjectiveNow:
    def burn(seconds: int) -> float | None:
        share = _bad(model, name, seconds)
        return None if share is None else share / (1 - target)

    severities = {severity for severity, _ in _burning(model, name, target)}
    hour = _bad(model, name, HOUR)
    state = "unknown" if hour is None else "ok"
    return ObjectiveNow(
        name=name,
        model=model.name,
        bound=bound,
        target=target,
        good=None if hour is None else 1 - hour,
        burn_5m=burn(300),
        burn_1h=burn(HOUR),
        state=next((each for each in ("page", "warn") if each in severities), state),
    )


def _bad(model: Watched, objective: str, seconds: int) -> float | None:
    sums = model.sums.get(seconds)
    judged = sums.judged.get(objective, 0) if sums is not None else 0
    return sums.bad.get(objective, 0) / judged if sums is not None and judged else None


def _burning(model: Watched, objective: str, target: float) -> Iterator[tuple[Severity, int]]:
    """Who should know that a budget is used up too fast, and over which time it is."""
    for burn in BURN_RATES:
        shares = [_bad(model, objective, seconds) or 0.0 for seconds in (burn.long, burn.short)]
        long = model.sums.get(burn.long)
        bad = long.bad.get(objective, 0) if long is not None else 0
        if min(shares) > burn.bound(target) and bad >= LEAST_BAD:
            yield burn.severity, burn.long


def _burn_rates(model: Watched, promises: Promises) -> Iterator[Condition]:
    for objective, _ in promises.of(model.name).bounds():
        target = promises.target(objective)
        for severity, seconds in _burning(model, objective, target):
            share = _bad(model, objective, seconds) or 0.0
            yield Condition(
                f"Penstock{objective.capitalize()}Burn{span(seconds)}",
                severity,
                summary(f"{share:.1%}", model.name, objective, target, seconds),
                labels={"model_name": model.name},
            )


def _replicas(model: Watched, promises: Promises) -> Iterator[Condition]:
    if model.healthy < thresholds.NO_REPLICA.bound:
        text = f"{model.name} has no healthy replica: its requests fail."
        yield _beyond(thresholds.NO_REPLICA, text, model)
    for replica in model.replicas:
        if replica.state not in ("healthy", "leaving") and not replica.drained:
            why = f": {replica.reason}" if replica.reason else ""
            text = f"{replica.name} of {model.name} gets no requests{why}."
            yield _beyond(thresholds.REPLICA, text, model, replica=replica.name)
    if model.oom > thresholds.OUT_OF_MEMORY.bound:
        yield _beyond(thresholds.OUT_OF_MEMORY, f"An engine of {model.name} has run out of memory.", model)
    if model.versions > thresholds.DRIFT.bound:
        text = f"{model.name} is served in {model.versions} versions at once."
        yield _beyond(thresholds.DRIFT, text, model)


def _errors(model: Watched, promises: Promises) -> Iterator[Condition]:
    errors = thresholds.ERRORS
    sums = model.sums[errors.window]
    judged = sums.judged.get("errors", 0)
    allowed = errors.bound * (1 - promises.target("errors"))
    if sums.failed >= errors.least and sums.failed > allowed * judged and judged:
        yield _beyond(errors, f"{sums.failed / judged:.1%} of the requests for {model.name} fail.", model)


def _latency(model: Watched, promises: Promises) -> Iterator[Condition]:
    promised = promises.of(model.name).ttft
    for threshold in (thresholds.TTFT_PAGE, thresholds.TTFT_WARN):
        spread = model.sums[threshold.window].urgent_ttft
        p99 = quantile(spread, 0.99)
        enough = sum(spread.values()) >= threshold.least
        if enough and p99 is not None and p99 > threshold.bound * promised:
            text = f"The first token of {model.name} takes {p99:.3g} s (p99)."
            yield _beyond(threshold, text, model)
    tpot = thresholds.TPOT
    now, day = model.sums[tpot.window], model.sums[DAY]
    mean = _ratio(now.tpot_seconds, now.tpot_count)
    usual = _ratio(day.tpot_seconds - now.tpot_seconds, day.tpot_count - now.tpot_count)
    if now.tpot_count >= tpot.least and mean and usual and mean > tpot.bound * usual:
        text = f"Tokens of {model.name} take {mean / usual:.2g} times as long as in the last day."
        yield _beyond(tpot, text, model)
    tail = thresholds.TAIL
    spread = model.sums[tail.window].e2e
    p99, p50 = quantile(spread, 0.99), quantile(spread, 0.5)
    if p99 is not None and p50 and sum(spread.values()) >= tail.least and p99 > tail.bound * p50:
        text = f"The slowest requests of {model.name} take {p99 / p50:.2g} times the median."
        yield _beyond(tail, text, model)


def _ratio(amount: float, count: float) -> float | None:
    return amount / count if amount > 0 and count > 0 else None


def _queue(model: Watched, promises: Promises) -> Iterator[Condition]:
    if model.growth > 0 and model.waiting > thresholds.QUEUE.bound:
        text = f"The queue of {model.name} has been growing for minutes; {model.waiting} requests wait."
        yield _beyond(thresholds.QUEUE, text, model)


_LOOKS = (_replicas, _errors, _latency, _queue, _burn_rates)


def _memory(gpus: Mapping[int, tuple[int, int]]) -> Iterator[Condition]:
    for index, (used, whole) in gpus.items():
        for threshold in (thresholds.GPU_MEMORY, thresholds.GPU_MEMORY_FULL):
            if whole and used / whole > threshold.bound:
                text = f"{used / whole:.0%} of the memory of GPU {index} is in use."
                labels = {"gpu": str(index)}
                yield Condition(threshold.name, threshold.severity, text, threshold.hold, labels)


def _cost(models: Sequence[Watched]) -> Iterator[Condition]:
    cost = thresholds.COST

    def spent(seconds: int) -> tuple[float, int]:
        sums = [model.sums[seconds] for model in models]
        tokens = sum(one.input_tokens + one.output_tokens for one in sums)
        return sum(one.dollars for one in sums), tokens

    (dollars, tokens), (day, day_tokens) = spent(cost.window), spent(DAY)
    now, usual = _ratio(dollars, tokens), _ratio(day - dollars, day_tokens - tokens)
    if now and usual and now > cost.bound * usual:
        text = f"A token costs {now / usual:.2g} times what it cost in the last day."
        yield Condition(cost.name, cost.severity, text, cost.hold)


def _beyond(threshold: Threshold, summary: str, model: Watched, **labels: str) -> Condition:
    named = {"model_name": model.name, **labels}
    return Condition(threshold.name, threshold.severity, summary, threshold.hold, named)
