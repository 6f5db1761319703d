"""Whatever is asked of the scheduler, in whatever order, the tokens are those of a request alone."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.errors import QueueFullError
from tests.engine.schedule.machine import Machine

EOS = 7
STEMS = [[3] * 30, [3] * 9 + [4] * 21, [5, 6] * 15]


def build(rng: Random, *, overlap: bool) -> Machine:
    """A machine too small for what will be asked of it."""
    block_size = rng.choice([1, 2, 4, 8])
    longest = rng.randint(10, 40)
    needed = -(-longest // block_size)
    max_running = rng.randint(1, 5)
    return Machine(
        blocks=rng.randint(needed, 3 * needed),
        block_size=block_size,
        prefix_caching=rng.random() < 0.7,
        max_running=max_running,
        max_waiting=rng.randint(3, 12),
        max_step_tokens=rng.randint(max_running, max_running + 12),
        max_model_len=longest,
        arrival_window=rng.choice([0.0, 0.0, 0.02]),
        ageing_seconds=rng.choice([0.05, 1.0]),
        overlap=overlap,
    )


def arrive(machine: Machine, rng: Random, name: str) -> None:
    stem = rng.choice(STEMS)[: machine.limits.max_model_len - 1]
    prompt = stem[: rng.randint(1, len(stem))]
    if rng.random() < 0.5:
        prompt[-1] = rng.randint(0, 9)
    params: dict[str, object] = {"max_tokens": rng.choice([None, 1, 2, 9, 30])}
    if params["max_tokens"] != 1:
        params["min_tokens"] = rng.choice([0, 0, 2])
    try:
        machine.submit(
            name,
            prompt,
            priority=rng.choice([-2, 0, 0, 0, 1]),
            salt=rng.choice(["", "", "acme"]),
            eos=(EOS,),
            n=rng.choice([1, 1, 1, 2, 3]),
            ignore_eos=rng.random() < 0.3,
            stop_token_ids=rng.choice([(), (8, 9)]),
            **params,
        )
    except QueueFullError:
        held = len(machine.running) + len(machine.waiting)
        assert held + 3 > machine.limits.max_running + machine.limits.max_waiting


def live_through(rng: Random, events: int, *, overlap: bool) -> Machine:
    machine = build(rng, overlap=overlap)
    for number in range(events):
        match rng.choice(["arrive", "arrive", "hang up", "step", "step", "step", "step"]):
            case "arrive":
                arrive(machine, rng, str(number))
            case "hang up" if machine.running or machine.waiting:
                name = rng.choice(machine.running + machine.waiting)
                machine.cancel(name, rng.choice([None, 0, 1]))
            case _:
                machine.step()
    machine.run()
    return machine


@pytest.mark.parametrize("overlap", [False, True], ids=["alone", "overlapping"])
@pytest.mark.parametrize("first", range(0, 200, 100))
def test_seeded_lives_end_as_the_reference_says(first: int, overlap: bool) -> None:
    preemptions = 0
    for seed in range(first, first + 100):
        try:
            preemptions += live_through(Random(seed), 150, overlap=overlap).scheduler.preemptions
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert preemptions > 100, "these worlds are meant to be crowded"


@settings(max_examples=60, derandomize=True)
@given(rng=st.randoms(use_true_random=False), events=st.integers(1, 40), overlap=st.booleans())
def test_hypothesis_finds_no_life_that_ends_otherwise(rng: Random, events: int, overlap: bool) -> None:
    live_through(rng, events, overlap=overlap)
