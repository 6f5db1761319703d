"""Whose failures count against a replica."""

from __future__ import annotations

from penstock.gateway.resilience.blame import MAX_TENANTS, MOST, WINDOW, Blame


def test_who_is_alone_is_believed() -> None:
    blame = Blame()
    assert all(blame.counts("a", float(at)) for at in range(20))


def test_among_several_a_few_failures_of_each_count() -> None:
    blame = Blame()
    blame.answered("b", 0.0)
    assert [blame.counts("a", 1.0) for _ in range(10)] == [True] * MOST + [False] * (10 - MOST)
    assert blame.counts("b", 1.0)


def test_failures_of_long_ago_and_tenants_that_are_gone_count_no_more() -> None:
    blame = Blame()
    blame.answered("b", 0.0)
    for _ in range(10):
        blame.counts("a", 1.0)
    blame.answered("b", WINDOW)
    assert blame.counts("a", WINDOW + 2.0), "its failures are too old to be held against it"
    assert all(blame.counts("a", 3 * WINDOW) for _ in range(10)), "it is alone by now"


def test_what_is_known_is_bounded() -> None:
    blame = Blame()
    for number in range(10 * MAX_TENANTS):
        blame.counts(str(number), float(number))
    assert len(blame._seen) <= MAX_TENANTS
    assert len(blame._failed) <= MAX_TENANTS
