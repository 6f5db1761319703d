"""Workloads ask for the same work every time, in other words."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.bench.workloads import DESCRIPTIONS, WORKLOADS, choose, length_range
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "requests", "clients", "input_tokens", "output_tokens"),
    [("W1", 3, 1, 3 * 128, 3 * 128), ("W3", 64, 16, 64 * 128, 64 * 64), ("W4", 32, None, 32 * 544, 32 * 32)],
)
def test_fixed_workloads_have_their_published_shape(
    name: str, requests: int, clients: int | None, input_tokens: int, output_tokens: int
) -> None:
    jobs = WORKLOADS[name].jobs()
    assert (len(jobs), WORKLOADS[name].clients) == (requests, clients)
    assert sum(len(job.prompt) for job in jobs) == input_tokens
    assert sum(job.output_len for job in jobs) == output_tokens


def test_w2_is_64_mixed_requests_at_once() -> None:
    workload = WORKLOADS["W2"]
    jobs = workload.jobs()
    assert len(jobs) == 64
    assert workload.clients is None
    assert all(32 <= len(job.prompt) <= 256 and 32 <= job.output_len <= 256 for job in jobs)
    assert len({job.output_len for job in jobs}) > 20


def test_repeats_have_the_same_lengths_and_other_tokens() -> None:
    for workload in WORKLOADS.values():
        first, second = workload.jobs(repeat=0), workload.jobs(repeat=1)
        assert [(len(j.prompt), j.output_len) for j in first] == [
            (len(j.prompt), j.output_len) for j in second
        ]
        # Not even one block of 16 tokens in common, which a prefix cache could use.
        starts = {tuple(job.prompt[:16]) for job in first}
        assert starts.isdisjoint({tuple(job.prompt[:16]) for job in second})


def test_the_same_salt_gives_the_same_prompts_and_another_salt_does_not() -> None:
    workload = WORKLOADS["W1"]
    assert workload.jobs(salt="a") == workload.jobs(salt="a")
    assert workload.jobs(salt="a") != workload.jobs(salt="b")


def test_w4_prompts_share_512_tokens_and_no_more() -> None:
    jobs = WORKLOADS["W4"].jobs()
    assert len({tuple(job.prompt[:512]) for job in jobs}) == 1
    assert len({job.prompt[512] for job in jobs}) > 1


def test_token_ids_stay_between_1000_and_40000_and_inside_a_small_vocabulary() -> None:
    tokens = [token for job in WORKLOADS["W2"].jobs() for token in job.prompt]
    assert 1000 <= min(tokens) < max(tokens) <= 40000
    small = [token for job in WORKLOADS["W2"].jobs(vocab_size=256) for token in job.prompt]
    assert max(small) <= 255
    few = [token for job in WORKLOADS["W1"].jobs(vocab_size=2000) for token in job.prompt]
    assert 1000 <= min(few) < max(few) <= 1999


def test_every_workload_is_described() -> None:
    assert DESCRIPTIONS.keys() == WORKLOADS.keys()


def test_a_workload_can_be_changed_and_says_so_in_its_name() -> None:
    assert choose("w3") is WORKLOADS["W3"]
    assert choose("W3", clients=4).name == "W3*"
    mine = choose(None, requests=2, input_len="5", output_len="3-4", prefix_len=7, clients=1)
    assert mine.name == "custom"
    assert [len(job.prompt) for job in mine.jobs()] == [12, 12]
    assert all(3 <= job.output_len <= 4 for job in mine.jobs())


def test_without_a_name_or_a_length_the_workload_is_w2() -> None:
    assert choose(None) is WORKLOADS["W2"]


def test_an_unknown_workload_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no workload 'W9'; choose one of W1, W2, W3, W4"):
        choose("W9")


@pytest.mark.parametrize("text", ["", "x", "0", "-5", "9-3", "1-", "1.5"])
def test_a_length_that_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--input-len must be a number of tokens"):
        length_range("input-len", text)


def test_counts_below_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="--requests must be at least 1, got 0"):
        choose("W1", requests=0)


def test_a_rate_makes_an_open_loop_of_a_workload() -> None:
    work = choose("W3", rate=4.0, arrivals="burst", burst_size=2, requests=6)
    assert (work.arrivals, work.rate, work.clients) == ("burst", 4.0, None)
    moments = [job.at for job in work.jobs()]
    assert moments[0] == moments[1] == 0.0
    assert len(set(moments)) == 3
    assert moments == [job.at for job in work.jobs(repeat=1)]
    assert [work.arrivals for work in (WORKLOADS["W2"], WORKLOADS["W3"])] == ["at once", "closed"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"rate": 1.0, "clients": 2}, "--rate sends requests whether or not answers have come"),
        ({"arrivals": "burst"}, "say how requests come at a --rate"),
        ({"rate": 1.0, "arrivals": "tides"}, "--arrivals must be one of"),
        ({"rate": -1.0}, "--rate must be a number"),
        ({"rate": 1.0, "burst_size": 0}, "--burst-size must be at least 1"),
    ],
)
def test_a_load_that_contradicts_itself_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        choose("W3", **changes)
