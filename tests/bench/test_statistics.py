"""Figures follow from times as their definitions say."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest

from penstock.bench.statistics import (
    Goodput,
    Run,
    Sample,
    Timing,
    distribution,
    median_run,
    percentile,
    summarise,
)


def test_percentiles_agree_with_the_standard_library() -> None:
    values = [random.Random(3).expovariate(1.0) for _ in range(501)]
    inclusive = statistics.quantiles(values, n=100, method="inclusive")
    for percent in (1, 50, 95, 99):
        assert percentile(values, percent) == pytest.approx(inclusive[percent - 1])


def test_a_percentile_of_one_value_is_the_value_and_of_none_is_none() -> None:
    assert percentile([4.0], 99) == 4.0
    assert percentile([], 50) is None
    assert distribution([]).mean is None


def timing(
    sent: float, times: list[float], *, tokens: int | None = None, wanted: int = 3, error: str | None = None
) -> Timing:
    count = len(times) if tokens is None else tokens
    return Timing(
        sent, wanted=wanted, input_tokens=10, tokens_at=times, output_tokens=count, ended=None, error=error
    )


def summary(*timings: Timing, wall: float = 10.0, **changes: Any) -> Run:
    return summarise(timings, workload="W", mode="online", repeat=0, wall=wall, **changes)


def test_a_run_reports_latency_and_throughput_of_what_succeeded() -> None:
    run = summary(
        timing(0.0, [1.0, 1.5, 2.0]),
        timing(1.0, [4.0, 5.0, 6.0]),
        timing(0.0, [9.0, 9.5], error="500: broken"),
        timing(0.0, []),
    )
    assert (run.requests, run.completed, run.errors, run.short) == (4, 2, 2, 0)
    assert run.first_error == "500: broken"
    assert (run.input_tokens, run.output_tokens) == (20, 6)
    assert (run.input_tokens_per_second, run.output_tokens_per_second, run.requests_per_second) == (
        2.0,
        0.6,
        0.2,
    )
    assert run.ttft.mean == pytest.approx(2.0)  # 1 and 3
    assert run.itl.mean == pytest.approx(0.75)  # 0.5 twice and 1 twice
    assert run.tpot.mean == pytest.approx(0.75)  # 0.5 and 1
    assert run.e2e.mean == pytest.approx(3.5)  # 2 and 5
    assert run.decode_tokens_per_second == pytest.approx(1 / 0.75)


def test_every_request_has_one_outcome_and_only_good_ones_count() -> None:
    late = timing(0.0, [1.0])
    late.timed_out, late.error = True, "No answer within 5 s."
    cut = timing(0.0, [1.0, 2.0])
    cut.cut_off = True
    run = summary(
        timing(0.0, [1.0, 2.0, 3.0]),
        timing(0.0, [1.0]),
        timing(0.0, [1.0], tokens=4),
        timing(0.0, [], error="500"),
        late,
        cut,
    )
    assert (run.completed, run.short, run.errors, run.timeouts, run.unfinished) == (1, 2, 1, 1, 1)
    assert (run.output_tokens, run.e2e.count) == (3, 1)
    assert [sample.outcome for sample in run.samples] == [
        "good",
        "short",
        "short",
        "error",
        "timeout",
        "unfinished",
    ]


def test_an_answer_that_may_end_early_is_good_when_it_does() -> None:
    early, beyond = timing(0.0, [1.0, 2.0]), timing(0.0, [1.0], tokens=9)
    early.exact = beyond.exact = False
    assert (early.outcome, beyond.outcome) == ("good", "short")


def test_goodput_counts_answers_that_keep_every_limit() -> None:
    prompt, slow_start = timing(0.0, [1.0, 1.5, 2.0]), timing(0.0, [3.0, 3.5, 4.0])
    short = timing(0.0, [0.1])
    run = summary(prompt, slow_start, short, slo={"ttft": 1.0, "tpot": 0.5, "e2e": 5.0})
    assert run.goodput == Goodput(
        slo={"ttft": 1.0, "tpot": 0.5, "e2e": 5.0},
        good=1,
        share=pytest.approx(1 / 3),
        requests_per_second=0.1,
        tokens_per_second=0.3,
    )
    assert summary(prompt).goodput is None


def test_a_distribution_has_a_curve_from_the_least_to_the_most() -> None:
    known = distribution(float(number) for number in range(201))
    assert (known.count, known.min, known.p50, known.p90, known.max) == (201, 0.0, 100.0, 180.0, 200.0)
    assert known.curve == tuple(2.0 * percent for percent in range(101))


def test_a_generator_that_was_late_or_busy_is_said_to_be() -> None:
    late = timing(0.0, [1.0, 1.5, 2.0])
    late.lag = 0.3
    run = summary(late, rate=5.0, client_cpu=9.0)
    assert run.schedule_lag is not None
    assert run.schedule_lag.max == 0.3
    assert [warning.split(" ")[3:5] for warning in run.warnings] == [["was", "late:"], ["used", "90%"]]
    assert summary(timing(0.0, [1.0, 1.5, 2.0]), rate=5.0, client_cpu=1.0).warnings == []


def test_samples_are_seconds_since_the_run_began() -> None:
    run = summary(timing(105.0, [106.0, 107.0, 108.0]), start=100.0)
    assert run.samples == [
        Sample(sent=5.0, ttft=1.0, e2e=3.0, input_tokens=10, output_tokens=3, outcome="good")
    ]


def test_time_per_token_counts_tokens_not_chunks() -> None:
    run = summary(timing(0.0, [1.0, 3.0], tokens=5, wanted=5))
    assert run.tpot.p50 == pytest.approx(0.5)  # four tokens after the first, in two seconds


def test_the_median_run_is_a_real_run() -> None:
    runs = [summary(timing(0.0, [1.0], wanted=1), wall=wall) for wall in (4.0, 1.0, 2.0)]
    assert median_run(runs) is runs[2]
