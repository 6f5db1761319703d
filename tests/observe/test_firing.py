"""Alerts without a Prometheus: each condition fires when it has held long enough, and not otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.config import SloConfig
from penstock.observe.alerts.thresholds import DAY
from penstock.observe.firing import Alarms, Condition, Watched, conditions, objectives
from penstock.observe.snapshot import ReplicaNow
from penstock.observe.window import WINDOWS, Sums, bucket
from tests.observe.alerts.promtool import promises

PROMISES = promises()
HEALTHY = ReplicaNow(name="one", state="healthy")
SICK = ReplicaNow(name="two", state="unhealthy", reason="it did not answer a probe")
DRAINED = ReplicaNow(name="two", state="drained", drained=True)


def model(sums: dict[int, Sums] | None = None, **fields: Any) -> Watched:
    every = {seconds: Sums() for seconds in WINDOWS} | (sums or {})
    return Watched(name="chat", sums=every, **{"healthy": 1, **fields})


def everywhere(**fields: Any) -> dict[int, Sums]:
    return {seconds: Sums(**fields) for seconds in WINDOWS}


def names(found: Sequence[Condition]) -> set[str]:
    return {each.name for each in found}


def bad(share: float, of: int = 1000, objective: str = "ttft") -> dict[int, Sums]:
    return everywhere(judged={objective: of}, bad={objective: round(share * of)})


CASES: list[tuple[str, Watched, Watched]] = [
    ("PenstockNoReplica", model(replicas=[SICK], healthy=0), model(replicas=[HEALTHY, SICK])),
    ("PenstockNoReplica", model(replicas=[DRAINED], healthy=0), model()),
    ("PenstockNoReplica", model(replicas=[], healthy=0), model(replicas=[HEALTHY])),
    ("PenstockReplicaUnhealthy", model(replicas=[HEALTHY, SICK]), model(replicas=[HEALTHY, DRAINED])),
    ("PenstockOutOfMemory", model(oom=1), model()),
    ("PenstockModelDrift", model(versions=2), model(versions=1)),
    ("PenstockQueueGrowing", model(waiting=11, growth=0.1), model(waiting=11, growth=-0.1)),
    ("PenstockQueueGrowing", model(waiting=11, growth=0.1), model(waiting=5, growth=0.1)),
    (
        "PenstockErrors",
        model(everywhere(failed=20, judged={"errors": 1000})),
        model(everywhere(failed=8, judged={"errors": 1000})),
    ),
    (
        "PenstockTtftVeryHigh",
        model(everywhere(ttft={bucket(2.5): 30})),
        model(everywhere(ttft={bucket(2.5): 3})),
    ),
    (
        "PenstockTtftHigh",
        model(everywhere(ttft={bucket(1.3): 30})),
        model(everywhere(ttft={bucket(0.4): 30, bucket(30.0): 30}, batch_ttft={bucket(30.0): 30})),
    ),
    (
        "PenstockTpotDeviates",
        model({900: Sums(tpot_seconds=4.0, tpot_count=100), DAY: Sums(tpot_seconds=24.0, tpot_count=1100)}),
        model({900: Sums(tpot_seconds=2.0, tpot_count=100), DAY: Sums(tpot_seconds=22.0, tpot_count=1100)}),
    ),
    (
        "PenstockTailLatency",
        model(everywhere(e2e={bucket(0.1): 190, bucket(9.0): 10})),
        model(everywhere(e2e={bucket(0.1): 190, bucket(0.5): 10})),
    ),
    (
        "PenstockCostRising",
        model({3600: Sums(dollars=3.0, input_tokens=1000), DAY: Sums(dollars=23.0, input_tokens=11_000)}),
        model({3600: Sums(dollars=2.0, input_tokens=1000), DAY: Sums(dollars=22.0, input_tokens=11_000)}),
    ),
    ("PenstockTtftBurn1h", model(bad(0.2)), model(bad(0.1))),
    ("PenstockTtftBurn6h", model(bad(0.1)), model(bad(0.05))),
    ("PenstockTtftBurn3d", model(bad(0.02)), model(bad(0.005))),
    ("PenstockErrorsBurn1h", model(bad(0.2, objective="errors")), model(bad(0.2, of=10, objective="errors"))),
]


@pytest.mark.parametrize(
    ("name", "firing", "quiet"), CASES, ids=[f"{case[0]}-{at}" for at, case in enumerate(CASES)]
)
def test_each_alert_fires_and_does_not(name: str, firing: Watched, quiet: Watched) -> None:
    assert name in names(conditions([firing], PROMISES))
    assert name not in names(conditions([quiet], PROMISES))


def test_a_server_that_has_just_begun_has_nothing_to_complain_of() -> None:
    assert conditions([model(replicas=[HEALTHY])], PROMISES) == []
    assert conditions([], PROMISES, {}) == []


def test_gpu_memory_warns_twice() -> None:
    high, full = "PenstockGpuMemoryHigh", "PenstockGpuMemoryNearlyFull"
    assert names(conditions([], PROMISES, {0: (86, 100)})) == {high}
    assert names(conditions([], PROMISES, {0: (91, 100)})) == {high, full}
    assert conditions([], PROMISES, {0: (84, 100)}) == []


def test_a_full_gpu_is_full_beside_an_empty_one() -> None:
    found = conditions([], PROMISES, {0: (1, 80), 1: (79, 80)})
    assert {each.labels["gpu"] for each in found} == {"1"}
    assert found[0].summary == "99% of the memory of GPU 1 is in use."
    both = conditions([], PROMISES, {0: (79, 80), 1: (79, 80)})
    assert len({each.key for each in both}) == 4


def test_the_short_window_ends_a_burn_alert_at_once() -> None:
    over = bad(0.5) | {300: Sums(judged={"ttft": 1000}, bad={"ttft": 0})}
    assert "PenstockTtftBurn1h" not in names(conditions([model(over)], PROMISES))


def test_an_alert_waits_until_its_condition_has_held_and_remembers_since_when() -> None:
    alarms = Alarms()
    held = [Condition("A", "warn", "It is so.", hold=300)]
    assert alarms.judge(held, 1000.0) == []
    assert alarms.judge(held, 1299.0) == []
    [alert] = alarms.judge(held, 1301.0)
    assert alert.since == 1300.0
    [alert] = alarms.judge(held, 2000.0)
    assert alert.since == 1300.0
    # One look without it, and it begins anew.
    assert alarms.judge([], 2001.0) == []
    assert alarms.judge(held, 2002.0) == []


def test_the_worst_comes_first() -> None:
    found = [Condition("A", "info", ""), Condition("B", "page", ""), Condition("C", "warn", "")]
    assert [alert.severity for alert in Alarms().judge(found, 0.0)] == ["page", "warn", "info"]


def test_two_models_with_the_same_trouble_are_two_alerts() -> None:
    found = conditions([model(oom=1), Watched(name="b", sums=everywhere(), oom=1, healthy=1)], PROMISES)
    assert len(Alarms().judge(found, 0.0)) == 2


@pytest.mark.parametrize(
    ("sums", "state", "good"),
    [
        ({}, "unknown", None),
        (bad(0.0), "ok", 1.0),
        (bad(0.2), "page", 0.8),
        (bad(0.02), "warn", 0.98),
    ],
)
def test_objectives_say_how_they_fare(sums: dict[int, Sums], state: str, good: float | None) -> None:
    ttft, errors = objectives([model(sums)], PROMISES)
    assert (ttft.name, ttft.bound, ttft.state) == ("ttft", 0.5, state)
    assert ttft.good == (None if good is None else pytest.approx(good))
    assert errors.bound is None
    if good is not None:
        assert ttft.burn_1h == pytest.approx((1 - good) / 0.01)


def test_a_promise_about_tokens_is_an_objective_of_its_own() -> None:
    assert [each.name for each in objectives([model()], promises(tpot=0.05))] == ["ttft", "errors", "tpot"]


def test_a_promise_about_whole_answers_is_an_objective_of_its_own() -> None:
    own = promises({"chat": SloConfig(e2e=10.0)})
    made = model(bad(0.2, objective="e2e"))
    assert [(each.name, each.bound, each.state) for each in objectives([made], own)][2:] == [
        ("e2e", 10.0, "page")
    ]
    assert "PenstockE2eBurn1h" in names(conditions([made], own))
    assert "PenstockE2eBurn1h" not in names(conditions([made], PROMISES)), "nobody was promised any"


def test_a_burn_alert_says_in_words_what_is_wrong() -> None:
    said = {each.name: each.summary for each in conditions([model(bad(0.2))], PROMISES)}
    assert said["PenstockTtftBurn1h"] == (
        "20.0% of the requests for chat got their first token too late, or not at all, in the last hour; "
        "1% may."
    )
