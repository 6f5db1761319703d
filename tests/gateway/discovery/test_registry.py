"""Who has registered, for how long, told by a clock in the test's hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidRequestError, QueueFullError
from penstock.gateway.discovery import Registry
from penstock.gateway.discovery import registry as module

A, B = "http://a:8000", "http://b:8000"


def test_a_server_is_known_until_its_time_is_over() -> None:
    registry = Registry()
    assert registry.register("chat", A + "/", 30.0, now=100.0)
    assert registry.addresses("chat", 129.9) == {A}
    assert registry.addresses("chat", 130.0) == frozenset()
    assert registry.register("chat", A, 30.0, now=130.0), "it is new again"


def test_renewing_prolongs_it() -> None:
    registry = Registry()
    registry.register("chat", A, 30.0, now=100.0)
    assert not registry.register("chat", A, 30.0, now=120.0)
    assert registry.addresses("chat", 149.0) == {A}


def test_groups_are_apart() -> None:
    registry = Registry()
    registry.register("chat", A, 30.0, now=0.0)
    registry.register("code", B, 30.0, now=0.0)
    assert registry.addresses("chat", 1.0) == {A}
    assert not registry.deregister("code", A, now=1.0)
    assert registry.deregister("chat", A, now=1.0)
    assert registry.addresses("chat", 1.0) == frozenset()
    assert registry.addresses("code", 1.0) == {B}


@pytest.mark.parametrize("ttl", [0.0, -1.0, 0.5, 3601.0, math.inf, math.nan])
def test_a_time_out_of_range_is_refused(ttl: float) -> None:
    registry = Registry()
    with pytest.raises(InvalidRequestError, match="ttl must be 1 to 3600 seconds") as caught:
        registry.register("chat", A, ttl, now=0.0)
    assert caught.value.param == "ttl"
    assert not registry.expiries


@pytest.mark.parametrize("url", ["", "a:8000", "ftp://a", "http://me:secret@a", "http://a/?b", 5, None])
def test_what_is_no_address_is_refused(url: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"^url .*\.$") as caught:
        Registry().register("chat", url, 30.0, now=0.0)  # type: ignore[arg-type]
    assert caught.value.param == "url"
    assert "secret" not in str(caught.value)


def test_there_is_room_for_so_many_and_renewing_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SERVERS", 2)
    registry = Registry()
    for url in (A, B, A, B):
        registry.register("chat", url, 30.0, now=0.0)
    with pytest.raises(QueueFullError, match="2 servers are registered already"):
        registry.register("chat", "http://c", 30.0, now=1.0)
    assert registry.register("chat", "http://c", 30.0, now=31.0), "those before have gone"


@given(
    st.lists(st.tuples(st.sampled_from(["in", "out"]), st.integers(0, 3), st.floats(1, 50), st.floats(0, 20)))
)
def test_it_knows_exactly_those_whose_last_word_was_to_come_and_whose_time_is_not_over(
    moves: list[tuple[str, int, float, float]],
) -> None:
    registry, until, now = Registry(), {}, 0.0
    for move, at, ttl, passed in moves:
        now += passed
        url = f"http://{at}"
        if move == "in":
            registry.register("chat", url, ttl, now)
            until[url] = now + ttl
        else:
            registry.deregister("chat", url, now)
            until.pop(url, None)
        assert registry.addresses("chat", now) == {url for url, end in until.items() if end > now}
        assert Registry(registry.expiries).addresses("chat", now) == registry.addresses("chat", now)
