"""Which replica each policy chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from penstock.config.sections import BALANCE_POLICIES
from penstock.gateway.balance import POLICIES, Load, Policy, PolicyOptions, Query, Replica
from penstock.gateway.balance.load import effective_weight

LATE = 1000.0  # long after everybody has joined


def policy(name: str, **options: float) -> Policy:
    return POLICIES[name](PolicyOptions(draw=Random(7).random, **options))  # type: ignore[arg-type]


def fleet(*weights: float) -> list[Replica]:
    return [Replica(f"r{i}", weight) for i, weight in enumerate(weights)]


def place(chooser: Policy, query: Query, replicas: Sequence[Replica], now: float = LATE) -> Replica:
    """As the dispatcher does: choose, tell, and count what is outstanding."""
    chosen = chooser.choose(query, replicas, now)
    chooser.placed(query, chosen, now)
    chosen.requests += 1
    chosen.tokens += query.tokens
    return chosen


def requests(replicas: Sequence[Replica]) -> list[int]:
    return [replica.requests for replica in replicas]


# ---------------------------------------------------------------- all of them


def test_the_policies_are_those_that_a_configuration_can_name() -> None:
    assert set(POLICIES) == set(BALANCE_POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_any_policy_chooses_one_of_those_it_is_given_whatever_came_and_went(name: str) -> None:
    for seed in range(30):
        rng, chooser = Random(seed), policy(name)
        replicas = fleet(*(rng.uniform(0.01, 100) for _ in range(rng.randint(1, 6))))
        for step in range(40):
            some = rng.sample(replicas, rng.randint(1, len(replicas)))
            load = Load(rng.randint(0, 9), rng.randint(0, 9), rng.choice([None, 0.0, rng.random()]))
            rng.choice(replicas).load = rng.choice([None, load])
            query = Query(
                tokens=rng.choice([0, 1, 10_000]),
                prefix=rng.sample([b"a", b"b", b"c"], rng.randint(0, 3)),
                session=rng.choice([None, "", "s", "\ud800"]),
            )
            assert place(chooser, query, some, float(step)) in some, f"seed {seed}"
            if rng.random() < 0.2:
                chooser.gone(rng.choice(replicas).name)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_shares_work_by_weight_when_all_is_busy(name: str) -> None:
    chooser, replicas = policy(name), fleet(1.0, 1.0, 2.0)
    for i in range(4000):
        place(chooser, Query(100, (f"p{i}".encode(),), f"s{i}"), replicas)
    heavy = replicas[2].requests / 4000
    assert heavy == pytest.approx(0.5, rel=0.15)


@pytest.mark.parametrize("name", POLICIES)
def test_a_replica_that_has_just_joined_gets_little_at_first(name: str) -> None:
    chooser, replicas = policy(name, slow_start=20.0), fleet(1.0, 1.0, 1.0)
    replicas[2].joined = LATE
    for i in range(600):
        place(chooser, Query(100, (f"p{i}".encode(),), f"s{i}"), replicas)
    young = replicas[2].requests
    assert 0 < young < 60
    for i in range(600):
        place(chooser, Query(100, (f"q{i}".encode(),), f"t{i}"), replicas, LATE + 20.0)
    assert replicas[2].requests - young >= 190


def test_the_weight_grows_from_a_tenth_to_the_whole() -> None:
    replica = Replica("r", weight=2.0, joined=100.0)
    grown = [effective_weight(replica, now, 10.0) for now in (99.0, 100.0, 105.0, 110.0, 1e6)]
    assert grown == pytest.approx([0.2, 0.2, 1.1, 2.0, 2.0])
    assert effective_weight(replica, 100.0, 0.0) == 2.0


@pytest.mark.parametrize("bound", [0.9, float("nan")])
def test_a_bound_below_the_mean_is_refused(bound: float) -> None:
    with pytest.raises(ValueError, match="load_bound"):
        PolicyOptions(draw=Random(1).random, load_bound=bound)


# ---------------------------------------------------------------- round robin


def test_round_robin_takes_turns_whatever_the_load() -> None:
    chooser, replicas = policy("round_robin"), fleet(1.0, 1.0, 1.0)
    replicas[0].tokens = 10**6
    assert [place(chooser, Query(1), replicas).name for _ in range(6)] == ["r0", "r1", "r2"] * 2


def test_round_robin_spreads_the_turns_of_the_heavy() -> None:
    chooser, replicas = policy("round_robin"), fleet(3.0, 1.0)
    assert [place(chooser, Query(1), replicas).name for _ in range(4)] == ["r0", "r0", "r1", "r0"]


# ---------------------------------------------------------------- least tokens


def test_least_tokens_counts_tokens_not_requests() -> None:
    replicas = fleet(1.0, 1.0)
    replicas[0].requests, replicas[0].tokens = 1, 5000
    replicas[1].requests, replicas[1].tokens = 10, 1000
    assert policy("least_tokens").choose(Query(100), replicas, LATE) is replicas[1]


def test_least_tokens_sees_the_work_that_others_sent() -> None:
    replicas = fleet(1.0, 1.0)
    for replica in replicas:
        replica.requests, replica.tokens = 2, 200
    replicas[0].load, replicas[1].load = Load(running=2, waiting=30), Load(running=2, waiting=0)
    assert policy("least_tokens").choose(Query(100), replicas, LATE) is replicas[1]


def test_among_idle_replicas_the_weightiest_goes_first() -> None:
    replicas = fleet(1.0, 3.0, 2.0)
    assert policy("least_tokens").choose(Query(100), replicas, LATE) is replicas[1]


def test_a_report_that_does_not_know_our_latest_requests_takes_nothing_off() -> None:
    replicas = fleet(1.0, 1.0)
    replicas[0].requests, replicas[0].tokens, replicas[0].load = 5, 500, Load(0, 0)
    assert policy("least_tokens").choose(Query(100), replicas, LATE) is replicas[1]


def test_among_equals_the_one_with_free_memory_then_the_one_used_longest_ago() -> None:
    chooser, replicas = policy("least_tokens"), fleet(1.0, 1.0, 1.0)
    order = []
    for _ in range(6):
        order.append(place(chooser, Query(10), replicas).name)
        replicas[int(order[-1][1])].tokens = replicas[int(order[-1][1])].requests = 0
    assert order == ["r0", "r1", "r2"] * 2
    for replica, usage in zip(replicas, (0.9, 0.2, 0.5), strict=True):
        replica.load = Load(0, 0, usage)
    assert chooser.choose(Query(10), replicas, LATE).name == "r1"


# ---------------------------------------------------------------- two choices


def test_two_choices_is_far_more_even_than_chance() -> None:
    chooser, replicas = policy("two_choices"), fleet(*[1.0] * 10)
    for _ in range(1000):
        place(chooser, Query(10), replicas)
    assert max(requests(replicas)) <= 105
    random = Counter(Random(7).choices(range(10), k=1000))
    assert max(random.values()) > 105


def test_two_choices_repeats_itself_from_the_same_seed() -> None:
    def run() -> list[int]:
        chooser, replicas = policy("two_choices"), fleet(*[1.0] * 5)
        for _ in range(50):
            place(chooser, Query(10), replicas)
        return requests(replicas)

    assert run() == run()


# ---------------------------------------------------------------- session


def homes(replicas: Sequence[Replica], sessions: int = 500) -> dict[str, str]:
    chooser = policy("session")
    return {f"s{i}": chooser.choose(Query(10, session=f"s{i}"), replicas, LATE).name for i in range(sessions)}


def test_a_session_stays_with_its_replica() -> None:
    replicas = fleet(1.0, 1.0, 1.0)
    assert homes(replicas) == homes(replicas) == homes(replicas[::-1])


def test_when_a_replica_goes_only_its_sessions_move_and_they_spread() -> None:
    replicas = fleet(1.0, 1.0, 1.0, 1.0)
    before, after = homes(replicas), homes(replicas[:3])
    moved = [session for session in before if before[session] != after[session]]
    assert {before[session] for session in moved} == {"r3"}
    assert len({after[session] for session in moved}) == 3
    assert all(80 < n < 180 for n in Counter(before.values()).values())


def test_a_session_leaves_a_replica_that_is_overloaded_and_comes_back() -> None:
    chooser, replicas = policy("session"), fleet(1.0, 1.0, 1.0)
    query = Query(100, session="s")
    home = chooser.choose(query, replicas, LATE)
    home.tokens = 10_000
    assert chooser.choose(query, replicas, LATE) is not home
    for replica in replicas:
        replica.tokens = 10_000
    assert chooser.choose(query, replicas, LATE) is home


def test_without_a_session_the_least_loaded_is_chosen() -> None:
    replicas = fleet(1.0, 1.0, 1.0)
    replicas[0].tokens = replicas[2].tokens = 100
    assert policy("session").choose(Query(100), replicas, LATE) is replicas[1]
