"""A sweep raises the load until more of it gives no more."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.bench.statistics import Run, Timing, summarise
from penstock.bench.sweep import Series, make_series, saturation, sentence
from penstock.errors import ConfigError


def point(rate: float, latency: float) -> Run:
    """A run of so many output tokens a second."""
    timing = Timing(0.0, wanted=1, input_tokens=1, tokens_at=[latency], output_tokens=1)
    return summarise([timing], workload="W", mode="sweep", repeat=0, wall=1 / rate)


FAILED = summarise([Timing(0.0, 1, 1, error="503")], workload="W", mode="sweep", repeat=0, wall=1.0)


def plan(**changes: str) -> list[Series]:
    options: dict[str, Any] = {"concurrency": None, "rate": None, "input_len": "128", "output_len": "64"}
    return make_series(**options | changes, prefix_len=4 if "input_len" in changes else 0, requests=None)


def test_saturation_is_the_first_load_after_which_only_the_waits_grow() -> None:
    assert saturation([point(10, 1.0), point(20, 1.0), point(20.5, 2.0), point(20.9, 4.0)]) == 1
    assert saturation([point(10, 1.0), point(9, 3.0), point(40, 2.0)]) is None  # one bad moment
    assert saturation([point(10, 1.0), point(20, 1.0), point(40, 1.1)]) is None
    assert saturation([point(10, 2.0), point(10, 1.0)]) is None  # noise: no wait grew
    assert saturation([point(10, 1.0), FAILED]) == 0
    assert saturation([point(10, 1.0)]) is None


def test_without_loads_clients_double_until_saturation() -> None:
    (series,) = plan()
    measured = [point(10, 1.0), point(20, 1.0)]
    assert [series.next_load(measured[:count]) for count in range(3)] == [1, 2, 4]
    measured.append(point(20.1, 2.0))
    assert series.next_load(measured) == 8  # to be sure
    measured.append(point(20.2, 4.0))
    assert series.next_load(measured) is None
    assert sentence(series, measured).startswith("128/64: saturated at 2 clients with 20.0 output tok/s")
    assert sentence(series, measured[:2]) == "128/64: not saturated by the loads measured."


def test_given_loads_are_all_measured_for_every_length() -> None:
    plans = plan(concurrency="1,4", input_len="128, 32-64", output_len="8,16")
    assert [series.workload.name for series in plans] == ["4+128/8", "4+128/16", "4+32-64/8", "4+32-64/16"]
    saturated = [point(10, 1.0), point(10, 2.0)]
    assert [plans[0].next_load(saturated[:count]) for count in range(3)] == [1, 4, None]
    four = plans[2].at(4)
    assert (four.clients, four.requests, four.input_len, four.prefix_len) == (4, 16, (32, 64), 4)


def test_a_rate_is_an_open_loop_of_some_seconds() -> None:
    (series,) = plan(rate="0.5,8")
    loads = [series.at(load) for load in series.loads]
    assert [(load.rate, load.requests, load.arrivals) for load in loads] == [
        (0.5, 16, "poisson"),
        (8.0, 80, "poisson"),
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"concurrency": "1,x"}, "--concurrency takes numbers above 0"),
        ({"concurrency": "0"}, "--concurrency takes numbers above 0"),
        ({"concurrency": "1.5"}, "--concurrency takes whole numbers"),
        ({"concurrency": "4,2"}, "--concurrency must rise"),
        ({"rate": "nan"}, "--rate takes numbers above 0"),
        ({"rate": "1", "concurrency": "1"}, "Give either --concurrency"),
        ({"input_len": "128,"}, "--input-len must be a number of tokens"),
    ],
)
def test_loads_that_cannot_be_are_refused(changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        plan(**changes)
