"""Reserve before, settle after: the same in memory and in the file that workers share."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import TenantConfig
from penstock.gateway.accounts import Accounts, Caller, Hold, Price
from penstock.gateway.accounts.price import DOLLAR
from penstock.gateway.store import Database, Tally, UsageTable
from penstock.gateway.store.usage import total
from penstock.protocol.errors import HTTPError, failure
from penstock.protocol.shapes import UsageCount

ACME = Caller("acme", "0123456789ab", "tenant-acme")
PRICE = Price(input=100, cached_input=10, output=1000, request=7)
JANUARY = datetime(2026, 1, 31, 23, 59, 50, tzinfo=UTC).timestamp()
FREE_OF_LIMITS = TenantConfig(name="acme")

Opener = Callable[..., Accounts]


@pytest.fixture(params=[1, 2], ids=["memory", "shared"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens accounts in one folder; several of them are several workers, or the same after a restart."""
    made: list[Accounts] = []

    def open_accounts(wall: Callable[[], float] = lambda: JANUARY) -> Accounts:
        made.append(Accounts.open(tmp_path, workers=request.param, wall=wall))
        return made[-1]

    yield open_accounts
    for accounts in made:
        accounts.close(10**6)


def tenant(**limits: Any) -> TenantConfig:
    return TenantConfig(name="acme", **limits)


def reserve(
    accounts: Accounts, limits: TenantConfig, now: float = 0.0, prompt: int = 10, output: int = 20
) -> Hold:
    return accounts.reserve(ACME, limits, "m", PRICE, prompt, output, now)


def refused(accounts: Accounts, limits: TenantConfig, now: float = 0.0, **tokens: int) -> HTTPError:
    with pytest.raises(HTTPError) as caught:
        reserve(accounts, limits, now, **tokens)
    error = caught.value
    assert error.status == 429
    assert failure(error).body.type == "rate_limit_error"
    return error


def written(folder: Path) -> Tally:
    with closing(Database(folder)) as database:
        return total(UsageTable(database).totals())


def test_requests_a_minute(opened: Opener) -> None:
    accounts, limits = opened(), tenant(requests_per_minute=2)
    for _ in range(2):
        accounts.settle(reserve(accounts, limits), UsageCount(), "ok", 0.0)
    error = refused(accounts, limits)
    assert error.code == "rate_limit_exceeded"
    assert error.headers == {
        "Retry-After": "30",
        "retry-after-ms": "30000",
        "x-ratelimit-limit-requests": "2",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m0s",
    }
    assert "2 requests a minute" in str(error)
    refused(accounts, limits, 29.9)
    reserve(accounts, limits, 30.0)


def test_tokens_a_minute_are_reserved_and_corrected(opened: Opener) -> None:
    accounts, limits = opened(), tenant(tokens_per_minute=100)
    hold = reserve(accounts, limits, prompt=10, output=80)
    error = refused(accounts, limits, prompt=10, output=1)
    assert error.code == "tokens_limit_exceeded"
    assert error.headers["Retry-After"] == "1"
    accounts.settle(hold, UsageCount(10, 10), "ok", 0.0)
    second = reserve(accounts, limits, prompt=40, output=40)
    refused(accounts, limits, prompt=1, output=0)
    assert not second.settled


def test_a_request_that_can_never_fit_is_told_so_and_not_to_try_again(opened: Opener) -> None:
    error = refused(opened(), tenant(tokens_per_minute=100), prompt=10, output=91)
    assert error.code == "tokens_limit_exceeded"
    assert "never" in str(error)
    assert error.headers["x-should-retry"] == "false"
    assert "Retry-After" not in error.headers
    assert error.headers["x-ratelimit-remaining-tokens"] == "100"


def test_requests_at_a_time(opened: Opener) -> None:
    accounts, limits = opened(), tenant(concurrent=2)
    first, _second = reserve(accounts, limits), reserve(accounts, limits)
    error = refused(accounts, limits, 1000.0)
    assert error.code == "concurrency_limit_exceeded"
    assert int(error.headers["Retry-After"]) >= 1
    accounts.settle(first, UsageCount(), "aborted", 1000.0)
    third = reserve(accounts, limits, 1000.0)
    refused(accounts, limits, 1000.0)
    assert not third.settled


def test_the_month_s_budget_counts_spent_and_held_and_the_retry_waits_for_the_next_month(
    opened: Opener,
) -> None:
    accounts = opened()
    limits = tenant(monthly_budget=2 * PRICE.most(10, 20) / DOLLAR)
    first = reserve(accounts, limits)
    second = reserve(accounts, limits)
    error = refused(accounts, limits)
    assert error.code == "insufficient_quota"
    assert error.headers["Retry-After"] == "1"  # what is held may turn out cheaper
    accounts.settle(first, UsageCount(10, 20), "ok", 1.0)
    accounts.settle(second, UsageCount(10, 20), "ok", 1.0)
    spent = refused(accounts, limits, 2.0, prompt=1, output=0)
    assert spent.headers["Retry-After"] == "10"
    # Nothing under way and nothing unspent is left, to the picodollar.
    assert accounts.ledger.spent("acme", "2026-01") == 2 * PRICE.most(10, 20)


def test_a_new_month_has_a_new_budget_and_what_began_in_the_old_one_is_billed_there(
    opened: Opener, tmp_path: Path
) -> None:
    wall = [JANUARY]
    accounts = opened(lambda: wall[0])
    limits = tenant(monthly_budget=PRICE.most(10, 20) / DOLLAR)
    old = reserve(accounts, limits)
    refused(accounts, limits)
    wall[0] += 60
    new = reserve(accounts, limits)
    accounts.settle(old, UsageCount(10, 20), "ok", 60.0)
    refused(accounts, limits)  # the old one's cost is not the new month's, but its own is held
    accounts.settle(new, UsageCount(10, 0), "ok", 60.0)
    accounts.flush()
    with closing(Database(tmp_path)) as database:
        days = {row.day: row.tally.cost for row in UsageTable(database).totals(["day"])}
    assert days == {"2026-01-31": PRICE.cost(10, 0, 20), "2026-02-01": PRICE.cost(10, 0, 0)}


def test_a_budget_survives_a_restart(opened: Opener) -> None:
    limits = tenant(monthly_budget=PRICE.most(10, 20) / DOLLAR)
    first = opened()
    first.settle(reserve(first, limits), UsageCount(10, 20), "ok", 0.0)
    assert first.flush()
    refused(opened(), limits)


def test_servers_side_by_side_see_what_the_others_have_spent(tmp_path: Path) -> None:
    one, two = (Accounts.open(tmp_path, wall=lambda: JANUARY) for _ in range(2))
    limits = tenant(monthly_budget=2 * PRICE.most(10, 20) / DOLLAR)
    for accounts in (one, two):
        accounts.settle(reserve(accounts, limits), UsageCount(10, 20), "ok", 0.0)
    for accounts in (one, two):
        accounts.flush()
    assert not one.due(1.0)
    refused(one, limits)
    for accounts in (one, two):
        accounts.close(2.0)


def test_a_budget_that_is_set_while_requests_run_counts_all_of_the_month(opened: Opener) -> None:
    accounts = opened()
    accounts.settle(reserve(accounts, FREE_OF_LIMITS), UsageCount(10, 20), "ok", 0.0)
    running = reserve(accounts, FREE_OF_LIMITS)
    limits = tenant(monthly_budget=3 * PRICE.most(10, 20) / DOLLAR)
    held = reserve(accounts, limits)
    accounts.settle(running, UsageCount(10, 20), "ok", 0.0)
    refused(accounts, limits)
    accounts.settle(held, UsageCount(), "failed", 0.0)
    reserve(accounts, limits)


def test_what_is_refused_takes_nothing_from_any_limit(opened: Opener) -> None:
    accounts = opened()
    limits = tenant(requests_per_minute=2, tokens_per_minute=60, concurrent=1)
    hold = reserve(accounts, limits)
    for _ in range(50):
        assert refused(accounts, limits).code == "concurrency_limit_exceeded"
    accounts.settle(hold, UsageCount(10, 20), "ok", 0.0)
    reserve(accounts, limits)


def test_a_hold_is_settled_once_whoever_comes_first(opened: Opener, tmp_path: Path) -> None:
    accounts, limits = opened(), tenant(concurrent=2, tokens_per_minute=60)
    hold = reserve(accounts, limits)
    other = reserve(accounts, limits)
    assert accounts.settle(hold, UsageCount(10, 5), "aborted", 0.0) == PRICE.cost(10, 0, 5)
    assert accounts.settle(hold, UsageCount(10, 20), "ok", 0.0) == 0
    accounts.flush()
    assert written(tmp_path) == Tally(
        requests=1, aborted=1, prompt=10, completion=5, cost=PRICE.cost(10, 0, 5)
    )
    third = reserve(accounts, limits, prompt=0, output=15)
    refused(accounts, limits, prompt=0, output=0)  # a second release would have made room
    assert not other.settled
    assert not third.settled


def test_a_handler_that_drops_its_hold_leaks_nothing(opened: Opener, tmp_path: Path) -> None:
    accounts, limits = opened(), tenant(concurrent=1)
    hold = reserve(accounts, limits)
    del hold
    gc.collect()
    again = reserve(accounts, limits)
    del again
    gc.collect()
    accounts.due(1.0)
    accounts.flush()
    assert written(tmp_path) == Tally(requests=2, failed=2)


def test_who_got_nothing_pays_nothing(opened: Opener) -> None:
    accounts = opened()
    for outcome in ("failed", "aborted", "refused"):
        hold = reserve(accounts, FREE_OF_LIMITS)
        assert accounts.settle(hold, UsageCount(), outcome, 0.0) == 0  # type: ignore[arg-type]
    assert accounts.settle(reserve(accounts, FREE_OF_LIMITS), UsageCount(), "ok", 0.0) == PRICE.request


def test_counts_that_make_no_sense_cannot_spoil_the_sums(opened: Opener, tmp_path: Path) -> None:
    accounts, limits = opened(), tenant(tokens_per_minute=10**6, monthly_budget=1.0)
    hold = reserve(accounts, limits, prompt=-5, output=-(10**30))
    assert accounts.settle(hold, UsageCount(-3, -4, cached=99), "ok", 0.0) == PRICE.request
    hold = reserve(accounts, FREE_OF_LIMITS)
    accounts.settle(hold, UsageCount(10, 10**40, cached=10**40), "ok", 0.0)
    assert accounts.flush()
    tally = written(tmp_path)
    assert (tally.requests, tally.prompt, tally.cached, tally.completion) == (2, 10, 10, 10**12)
    assert tally.cost == PRICE.request * 2 + 10 * PRICE.cached_input + 10**12 * PRICE.output


def test_a_request_too_dear_to_count_is_within_no_budget(opened: Opener) -> None:
    error = refused(opened(), tenant(monthly_budget=1000.0), prompt=10**40, output=10**40)
    assert error.code == "insufficient_quota"
    assert "never" in str(error)


def test_many_reservations_at_the_edge_of_the_budget_pass_to_the_last_picodollar(opened: Opener) -> None:
    accounts = opened()
    limits = tenant(monthly_budget=100 * PRICE.most(10, 20) / DOLLAR)
    holds = [reserve(accounts, limits) for _ in range(100)]
    for _ in range(10):
        refused(accounts, limits)
    accounts.settle(holds[0], UsageCount(10, 19), "ok", 0.0)  # one token of the answer less
    refused(accounts, limits, prompt=0, output=1)  # which does not pay for a request besides
    for hold in holds[1:]:
        accounts.settle(hold, UsageCount(10, 20), "ok", 0.0)
    assert accounts.ledger.spent("acme", "2026-01") == 100 * PRICE.most(10, 20) - PRICE.output


def test_another_model_takes_over_the_hold_at_its_own_price(opened: Opener, tmp_path: Path) -> None:
    accounts = opened()
    dear = Price(output=10**6)
    limits = tenant(monthly_budget=dear.most(10, 20) / DOLLAR)
    hold = reserve(accounts, limits)
    accounts.reserve_again(hold, "large", dear, 10, 20, 0.0)
    refused(accounts, limits)
    accounts.reserve_again(hold, "free", None, 10, 20, 0.0)
    second = reserve(accounts, limits)
    with pytest.raises(HTTPError, match="budget"):
        accounts.reserve_again(hold, "large", dear, 10, 20, 0.0)
    assert accounts.settle(second, UsageCount(10, 20), "ok", 0.0) == PRICE.most(10, 20)
    assert accounts.settle(hold, UsageCount(10, 20), "ok", 0.0) == 0
    accounts.flush()
    with closing(Database(tmp_path)) as database:
        assert {row.model: row.tally.ok for row in UsageTable(database).totals(["model"])} == {
            "free": 1,
            "m": 1,
        }


def test_another_model_that_may_write_more_needs_more_of_the_budget(opened: Opener) -> None:
    accounts = opened()
    limits = tenant(monthly_budget=PRICE.most(10, 100) / DOLLAR)
    hold = reserve(accounts, limits, prompt=10, output=20)
    with pytest.raises(HTTPError, match="budget"):
        accounts.reserve_again(hold, "large", PRICE, 10, 101, 0.0)
    accounts.reserve_again(hold, "large", PRICE, 10, 100, 0.0)
    refused(accounts, limits, prompt=0, output=1)
    accounts.settle(hold, UsageCount(10, 20), "ok", 0.0)
    reserve(accounts, limits, prompt=0, output=1)


def test_another_model_that_may_write_more_needs_more_tokens_a_minute(opened: Opener) -> None:
    accounts = opened()
    limits = tenant(tokens_per_minute=100)
    hold = reserve(accounts, limits, prompt=10, output=20)
    with pytest.raises(HTTPError, match="tokens a minute"):
        accounts.reserve_again(hold, "large", PRICE, 10, 91, 0.0)
    accounts.reserve_again(hold, "large", PRICE, 10, 90, 0.0)
    refused(accounts, limits, prompt=0, output=1)
    accounts.settle(hold, UsageCount(10, 20), "ok", 0.0)
    reserve(accounts, limits, prompt=50, output=20)


def test_answers_say_where_the_tenant_stands_in_openai_s_headers(opened: Opener) -> None:
    accounts = opened()
    limits = tenant(requests_per_minute=60, tokens_per_minute=600)
    hold = reserve(accounts, limits, prompt=10, output=20)
    assert hold.headers() == [
        (b"x-ratelimit-limit-requests", b"60"),
        (b"x-ratelimit-remaining-requests", b"59"),
        (b"x-ratelimit-reset-requests", b"1s"),
        (b"x-ratelimit-limit-tokens", b"600"),
        (b"x-ratelimit-remaining-tokens", b"570"),
        (b"x-ratelimit-reset-tokens", b"3s"),
    ]
    later = dict(reserve(accounts, limits, 0.5, prompt=500, output=64).headers())
    assert later[b"x-ratelimit-reset-requests"] == b"1.5s"
    assert later[b"x-ratelimit-reset-tokens"] == b"58.9s"
    assert later[b"x-ratelimit-remaining-tokens"] == b"11"
    assert reserve(accounts, FREE_OF_LIMITS).headers() == []


def test_tenants_do_not_disturb_each_other(opened: Opener) -> None:
    accounts, limits = opened(), tenant(requests_per_minute=1)
    reserve(accounts, limits)
    refused(accounts, limits)
    accounts.reserve(Caller("zoo"), limits, "m", PRICE, 1, 1, 0.0)


def test_refusals_are_counted_in_the_ledger(opened: Opener, tmp_path: Path) -> None:
    accounts, limits = opened(), tenant(requests_per_minute=1)
    accounts.settle(reserve(accounts, limits), UsageCount(10, 20, cached=4), "ok", 0.0, saved=500)
    for _ in range(3):
        refused(accounts, limits)
    accounts.flush()
    assert written(tmp_path) == Tally(
        requests=4, ok=1, refused=3, prompt=10, cached=4, completion=20, saved=500, cost=PRICE.cost(10, 4, 20)
    )


steps = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.sampled_from(["acme", "zoo", "free"]), st.integers(0, 300)),
        st.tuples(st.just("settle"), st.integers(0, 50), st.integers(0, 300)),
        st.tuples(st.just("drop"), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 40), st.just(0)),
    ),
    max_size=60,
)
LIMITS = {
    "acme": TenantConfig(name="acme", concurrent=4, tokens_per_minute=2000, monthly_budget=1e-6),
    "zoo": TenantConfig(name="zoo", requests_per_minute=5, monthly_budget=5e-7),
    "free": TenantConfig(name="free"),
}


@pytest.mark.parametrize("workers", [1, 2])
@settings(max_examples=60)
@given(steps=steps)
def test_in_whatever_order_things_happen_the_totals_are_exact_and_no_limit_is_passed(
    workers: int, steps: list[tuple[str, Any, int]]
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        doors = [Accounts.open(folder, workers=workers, wall=lambda: JANUARY) for _ in range(workers)]
        running: list[tuple[Accounts, Hold]] = []
        expected: dict[str, Tally] = {tenant: Tally() for tenant in LIMITS}
        now = 0.0
        for number, (what, which, size) in enumerate(steps):
            door = doors[number % workers]
            if what == "reserve":
                mine = expected[which]
                try:
                    hold = door.reserve(Caller(which), LIMITS[which], "m", PRICE, size // 3, size, now)
                    running.append((door, hold))
                except HTTPError:
                    mine.add(Tally(requests=1, refused=1))
                del mine
            elif what in ("settle", "drop") and running:
                door, hold = running.pop(which % len(running))
                tally = expected[hold.tenant]
                if what == "settle":
                    completion = min(size, hold.output)
                    cost = PRICE.cost(hold.prompt, 0, completion)
                    assert door.settle(hold, UsageCount(hold.prompt, completion), "ok", now) == cost
                    tally.add(Tally(1, hold.prompt, 0, completion, cost=cost, ok=1))
                else:
                    tally.add(Tally(requests=1, failed=1))
                del hold
            elif what == "flush":
                door.flush()
            elif what == "wait":
                now += which
            for tenant, config in LIMITS.items():
                under_way = [hold for _, hold in running if hold.tenant == tenant]
                assert config.concurrent is None or len(under_way) <= config.concurrent
                if config.monthly_budget is not None:
                    committed = expected[tenant].cost + sum(hold.cost for hold in under_way)
                    assert committed <= config.monthly_budget * DOLLAR
        for door, hold in running:
            door.settle(hold, UsageCount(hold.prompt, 0), "aborted", now)
            cost = PRICE.cost(hold.prompt, 0, 0) if hold.prompt else 0
            expected[hold.tenant].add(Tally(1, hold.prompt, cost=cost, aborted=1))
        closed = [door.close(now) for door in doors]
        assert all(closed)
        with closing(Database(folder)) as database:
            found = {row.tenant: row.tally for row in UsageTable(database).totals(["tenant"])}
        assert found == {tenant: tally for tenant, tally in expected.items() if tally.requests}


def test_usage_of_a_state_that_is_lost_is_kept_and_begins_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    door = Accounts.open(tmp_path / "state", wall=lambda: JANUARY)
    limits = tenant(monthly_budget=100_000 / DOLLAR)  # a request of ten and twenty tokens costs 21,007
    for _ in range(2):
        door.settle(reserve(door, limits), UsageCount(10, 20), "ok", 0.0)
    assert door.flush()
    shutil.rmtree(tmp_path / "state")
    for now in (1.0, 2.0):
        door.settle(reserve(door, limits, now), UsageCount(10, 20), "ok", now)
        assert door.due(now)
        assert not door.flush()
    assert refused(door, limits, 3.0).code == "insufficient_quota", "what was spent before is still known"
    assert "is gone" in caplog.text
    assert door.close(4.0)
    with closing(Database(tmp_path / "state")) as database:
        assert total(UsageTable(database).totals()).ok == 2
