"""How long to wait before an engine is started again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.engines import RestartPolicy, Restarts

POLICY = RestartPolicy(pause=1.0, max_pause=60.0, calm=60.0)


def test_pauses_double_up_to_a_limit() -> None:
    restarts = Restarts(POLICY)
    longest = [restarts.pause(ran=0.0, draw=1.0) for _ in range(9)]
    assert longest == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert restarts.attempts == 9


def test_an_engine_that_ran_for_a_calm_while_begins_anew() -> None:
    restarts = Restarts(POLICY)
    for _ in range(5):
        restarts.pause(ran=59.0, draw=1.0)
    assert restarts.pause(ran=60.0, draw=1.0) == 1.0
    assert restarts.attempts == 1


@given(draws=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=2000))
def test_a_pause_is_anything_between_nothing_and_the_longest(draws: list[float]) -> None:
    restarts = Restarts(POLICY)
    for at, draw in enumerate(draws):
        assert restarts.pause(ran=0.0, draw=draw) == pytest.approx(min(60.0, 2.0 ** min(at, 10)) * draw)
