"""Guided choice: which token may come next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.schedule.guide import Guide

END = 99
CHOICES = [(1, 2, 3), (1, 4), (5,), (5, 6)]


@pytest.mark.parametrize(
    ("output", "allowed"),
    [
        ([], [1, 5]),
        ([1], [2, 4]),
        ([1, 2], [3]),
        ([5], [6, END]),
        ([1, 4], [END]),
        ([7], []),
        ([1, 4, 4], []),
    ],
)
def test_what_may_come_next_continues_a_choice_or_ends_it(output: list[int], allowed: list[int]) -> None:
    assert sorted(Guide(CHOICES, [END]).allowed(output)) == allowed


def test_it_is_over_where_no_choice_goes_on() -> None:
    guide = Guide(CHOICES, [END])
    assert [output for output in ([], [1], [1, 4], [5], [5, 6], [1, 2, 3]) if guide.over(output)] == [
        [1, 4],
        [5, 6],
        [1, 2, 3],
    ]


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_every_walk_ends_at_a_choice_and_every_choice_can_be_reached(
    choices: list[tuple[int, ...]], rng: object
) -> None:
    guide = Guide(choices, [END])
    output: list[int] = []
    while not guide.over(output):
        token = rng.choice(guide.allowed(output))  # type: ignore[attr-defined]
        if token == END:
            break
        output.append(token)
    assert tuple(output) in choices
    for choice in choices:
        assert all(choice[n] in guide.allowed(choice[:n]) for n in range(len(choice)))
