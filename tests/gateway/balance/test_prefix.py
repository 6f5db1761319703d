"""Requests go where their prompt's beginning is cached, within bounds of load and memory."""

from __future__ import annotations

from collections import OrderedDict
from random import Random

import pytest

from penstock.engine.memory.digest import DigestChain, root_digest
from penstock.gateway.balance import POLICIES, Policy, PolicyOptions, Query, Replica, token_digests
from penstock.gateway.balance.prefix import Prefix, PrefixIndex

LATE = 1000.0
BLOCK = 16


def prefix_policy(**options: float) -> Policy:
    return Prefix(PolicyOptions(draw=Random(1).random, **options))  # type: ignore[arg-type]


def fleet(size: int) -> list[Replica]:
    return [Replica(f"r{i}") for i in range(size)]


def query(*parts: bytes, tokens: int = 100) -> Query:
    return Query(tokens, parts)


def test_a_known_prefix_goes_where_it_went_before() -> None:
    chooser, replicas = prefix_policy(), fleet(4)
    chooser.placed(query(b"a", b"ab"), replicas[2], LATE)
    assert chooser.choose(query(b"a", b"ab", b"abc"), replicas, LATE) is replicas[2]
    assert chooser.choose(query(b"a", b"ax"), replicas, LATE) is replicas[2]


def test_the_longest_known_prefix_wins() -> None:
    chooser, replicas = prefix_policy(), fleet(4)
    chooser.placed(query(b"a", b"ab"), replicas[2], LATE)
    chooser.placed(query(b"a", b"ab", b"abc"), replicas[3], LATE)
    assert chooser.choose(query(b"a", b"ab", b"abc", b"abcd"), replicas, LATE) is replicas[3]


def test_an_unknown_prefix_goes_to_the_least_loaded() -> None:
    chooser, replicas = prefix_policy(), fleet(3)
    replicas[0].tokens = replicas[1].tokens = 500
    assert chooser.choose(query(b"new"), replicas, LATE) is replicas[2]
    assert chooser.choose(Query(10), replicas, LATE) is replicas[2]


def test_among_those_that_have_it_the_least_loaded_wins() -> None:
    chooser, replicas = prefix_policy(), fleet(3)
    for replica in replicas[:2]:
        chooser.placed(query(b"a"), replica, LATE)
    replicas[0].tokens = 100
    assert chooser.choose(query(b"a"), replicas, LATE) is replicas[1]


def test_an_overloaded_replica_is_passed_over_for_the_next_best_match() -> None:
    chooser, replicas = prefix_policy(), fleet(4)
    chooser.placed(query(b"a", b"ab"), replicas[0], LATE)
    chooser.placed(query(b"a"), replicas[1], LATE)
    replicas[0].tokens = 10_000
    assert chooser.choose(query(b"a", b"ab"), replicas, LATE) is replicas[1]
    for replica in replicas:
        replica.tokens = 10_000
    assert chooser.choose(query(b"a", b"ab"), replicas, LATE) is replicas[0]


def test_in_a_quiet_fleet_a_second_request_at_the_same_replica_is_not_too_many() -> None:
    chooser, replicas = prefix_policy(), fleet(4)
    chooser.placed(query(b"a"), replicas[0], LATE)
    replicas[0].tokens, replicas[0].requests = 100, 1
    assert chooser.choose(query(b"a"), replicas, LATE) is replicas[0]


def test_a_hot_prefix_spreads_to_as_many_replicas_as_it_needs() -> None:
    chooser, replicas = prefix_policy(), fleet(4)
    for _ in range(80):
        chosen = chooser.choose(query(b"hot"), replicas, LATE)
        chooser.placed(query(b"hot"), chosen, LATE)
        chosen.tokens += 100
        chosen.requests += 1
    assert max(replica.requests for replica in replicas) <= 1.25 * 20 + 1


def test_a_replica_that_has_gone_is_forgotten_even_if_its_name_comes_back() -> None:
    chooser, replicas = prefix_policy(), fleet(3)
    chooser.placed(query(b"a"), replicas[2], LATE)
    chooser.gone("r2")
    replicas[2].tokens = 50
    assert chooser.choose(query(b"a"), replicas, LATE) is not replicas[2]
    chooser.placed(query(b"b"), replicas[2], LATE)
    assert chooser.choose(query(b"a"), replicas, LATE) is not replicas[2]
    assert chooser.choose(query(b"b"), replicas, LATE) is replicas[2]


def test_the_index_is_bounded_and_forgets_what_was_used_longest_ago() -> None:
    index = PrefixIndex(4)
    index.add([b"a", b"ab"], "r0")
    index.add([b"x", b"xy"], "r1")
    index.add([b"a", b"ab"], "r0")
    index.add([b"n"], "r1")
    assert len(index) == 4
    assert index.longest([b"ab"], {"r0", "r1"}) == {"r0"}
    assert index.longest([b"x"], {"r0", "r1"}) == {"r1"}, "the end goes before the beginning"
    index.add([bytes([i]) for i in range(100)], "r0")
    assert len(index) == 4


def test_the_end_of_a_prefix_is_worth_nothing_without_its_beginning() -> None:
    index = PrefixIndex(10)
    index.add([b"ab"], "r1")
    index.add([b"a"], "r0")
    assert index.longest([b"a", b"ab"], {"r0", "r1"}) == {"r0"}


def test_replicas_that_come_and_go_for_ever_leave_nothing_behind() -> None:
    index = PrefixIndex(10)
    for i in range(100):
        index.add([b"hot"], f"r{i}")
        index.forget(f"r{i}")
    assert len(index._holders[b"hot"]) <= 2
    assert not index._names
    assert not index._numbers


# ---------------------------------------------------------------- a workload


class Cache:
    """A replica's own prefix cache: whole prefixes of blocks, the least recently used out first."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._held: OrderedDict[bytes, None] = OrderedDict()

    def read(self, digests: list[bytes]) -> int:
        """How many of a prompt's first blocks were there; all are afterwards."""
        hits = 0
        for digest in digests:
            if digest not in self._held:
                break
            hits += 1
        for digest in reversed(digests):
            self._held[digest] = None
            self._held.move_to_end(digest)
        while len(self._held) > self._blocks:
            self._held.popitem(last=False)
        return hits


def run_workload(name: str, size: int, *, seed: int) -> tuple[float, float]:
    """Chats that share one of 40 system prompts, some far more popular than others, grow by turns and
    end, on replicas that each hold a part of what is live. Returns the hit rate by blocks, and the
    most that any replica was given over the mean."""
    rng = Random(seed)
    chooser = POLICIES[name](PolicyOptions(draw=rng.random))
    replicas = fleet(size)
    # Together they hold the same number of blocks, however many they are.
    caches = {replica.name: Cache(4000 // size) for replica in replicas}
    given = dict.fromkeys(caches, 0)
    systems = [[rng.randrange(50_000) for _ in range(BLOCK * rng.randint(8, 40))] for _ in range(40)]
    popularity = [1 / (rank + 1) for rank in range(len(systems))]
    chats: list[list[int]] = []
    running: list[tuple[Replica, int]] = []
    hits = blocks = 0
    for _ in range(4000):
        if len(chats) < 60 or rng.random() < 0.2:
            chats.append(list(rng.choices(systems, popularity)[0]))
        chat = rng.choice(chats)
        chat += [rng.randrange(50_000) for _ in range(BLOCK * rng.randint(1, 6))]
        asked = Query(len(chat) + 100, token_digests(chat, BLOCK, ""))
        chosen = chooser.choose(asked, replicas, LATE)
        chooser.placed(asked, chosen, LATE)
        digests = DigestChain(root_digest(""), BLOCK).extend(chat)
        hits += caches[chosen.name].read(digests)
        blocks += len(digests)
        given[chosen.name] += asked.tokens
        chosen.requests += 1
        chosen.tokens += asked.tokens
        running.append((chosen, asked.tokens))
        if len(running) > 32:
            done, tokens = running.pop(rng.randrange(len(running)))
            done.requests -= 1
            done.tokens -= tokens
        if rng.random() < 0.2 and len(chats) > 60:
            chats.remove(chat)
    return hits / blocks, max(given.values()) * size / sum(given.values())


@pytest.mark.parametrize("seed", [1, 2])
def test_four_replicas_hit_nearly_as_often_as_one_and_share_the_load(seed: int) -> None:
    single, _ = run_workload("prefix", 1, seed=seed)
    hit_rate, most = run_workload("prefix", 4, seed=seed)
    assert single > 0.5
    assert hit_rate >= 0.9 * single
    assert most <= 1.5


def test_taking_turns_would_miss_that_bar() -> None:
    single, _ = run_workload("round_robin", 1, seed=1)
    hit_rate, _ = run_workload("round_robin", 4, seed=1)
    assert hit_rate < 0.9 * single


def test_without_a_load_bound_a_hot_prefix_would_miss_it_too() -> None:
    """The bound is what spreads: with none, everything that shares a prefix lands on one replica."""
    chooser, replicas = prefix_policy(load_bound=1e9), fleet(4)
    for _ in range(80):
        chosen = chooser.choose(query(b"hot"), replicas, LATE)
        chooser.placed(query(b"hot"), chosen, LATE)
        chosen.tokens += 100
    assert max(replica.tokens for replica in replicas) == 8000
