"""Figures follow from times as their definitions say."""

from __future__ import annotations

import random
import statistics

import pytest

from penstock.bench.statistics import Timing, distribution, median_run, percentile, summarise


def test_percentiles_agree_with_the_standard_library() -> None:
    values = [random.Random(3).expovariate(1.0) for _ in range(501)]
    inclusive = statistics.quantiles(values, n=100, method="inclusive")
    for percent in (1, 50, 95, 99):
        assert percentile(values, percent) == pytest.approx(inclusive[percent - 1])


def test_a_percentile_of_one_value_is_the_value_and_of_none_is_none() -> None:
    assert percentile([4.0], 99) == 4.0
    assert percentile([], 50) is None
    assert distribution([]).mean is None


def timing(sent: float, times: list[float], *, tokens: int | None = None, error: str | None = None) -> Timing:
    count = len(times) if tokens is None else tokens
    return Timing(
        sent, wanted=3, input_tokens=10, tokens_at=times, output_tokens=count, ended=None, error=error
    )


def test_a_run_reports_latency_and_throughput_of_what_succeeded() -> None:
    run = summarise(
        [
            timing(0.0, [1.0, 1.5, 2.0]),
            timing(1.0, [4.0, 6.0]),
            timing(0.0, [], error="500: broken"),
            timing(0.0, []),
        ],
        workload="W",
        mode="online",
        repeat=0,
        wall=10.0,
    )
    assert (run.requests, run.errors, run.short) == (4, 2, 1)
    assert run.first_error == "500: broken"
    assert (run.input_tokens, run.output_tokens) == (20, 5)
    assert (run.input_tokens_per_second, run.output_tokens_per_second, run.requests_per_second) == (
        2.0,
        0.5,
        0.2,
    )
    assert run.ttft.mean == pytest.approx(2.0)  # 1 and 3
    assert run.itl.mean == pytest.approx(1.0)  # 0.5, 0.5 and 2
    assert run.tpot.mean == pytest.approx(1.25)  # 0.5 and 2
    assert run.e2e.mean == pytest.approx(3.5)  # 2 and 5


def test_time_per_token_counts_tokens_not_chunks() -> None:
    run = summarise([timing(0.0, [1.0, 3.0], tokens=5)], workload="W", mode="online", repeat=0, wall=3.0)
    assert run.tpot.p50 == pytest.approx(0.5)  # four tokens after the first, in two seconds


def test_the_median_run_is_a_real_run() -> None:
    runs = [
        summarise([timing(0.0, [1.0])], workload="W", mode="online", repeat=number, wall=wall)
        for number, wall in enumerate((4.0, 1.0, 2.0))
    ]
    assert median_run(runs) is runs[2]
