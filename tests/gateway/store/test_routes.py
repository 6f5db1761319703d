"""The router's books on disk, and the log of its decisions."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aio.books import FIELDS, MONEY, Account, RouteTally, Tallies, merge
from penstock.aio.decision import Candidate, Decision
from penstock.gateway.store import Database
from penstock.gateway.store import decisions as log_module
from penstock.gateway.store.decisions import DecisionLog
from penstock.gateway.store.routes import RouteLedger, RouteTable
from penstock.gateway.store.usage import DOLLAR

accounts = st.tuples(
    st.sampled_from(["acme", "zoo"]),
    st.sampled_from(["2026-01-30", "2026-01-31"]),
    st.sampled_from(["1", "2"]),
)
money = st.one_of(st.integers(0, 3 * DOLLAR), st.integers(0, 10**24))
amounts = st.fixed_dictionaries({name: money if name in MONEY else st.integers(0, 10**9) for name in FIELDS})


@settings(max_examples=20)
@given(
    st.lists(
        st.dictionaries(accounts, amounts.map(lambda values: RouteTally(**values)), max_size=3), max_size=5
    )
)
def test_sums_are_exact_however_large(batches: list[dict[Account, RouteTally]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder))
        table = RouteTable(database)
        expected: Tallies = {}
        for batch in batches:
            table.add(batch)
            merge(expected, batch)
        assert table.totals() == expected
        assert list(table.totals()) == sorted(expected)
        database.close()


def test_totals_can_be_asked_for_a_tenant_a_tier_and_some_days(tmp_path: Path) -> None:
    table = RouteTable(Database(tmp_path))
    days = [f"2026-01-{day:02}" for day in range(1, 11)]
    table.add({(who, day, tier): RouteTally(requests=1) for who in "ab" for day in days for tier in "12"})
    assert set(table.totals(tenant="a", tier="1", since="2026-01-03", until="2026-01-04")) == {
        ("a", "2026-01-03", "1"),
        ("a", "2026-01-04", "1"),
    }
    assert table.totals(tenant="nobody") == {}


def test_two_processes_add_to_the_same_sums(tmp_path: Path) -> None:
    ledgers = [RouteLedger(RouteTable(Database(tmp_path))) for _ in range(2)]
    for ledger in ledgers:
        for _ in range(3):
            ledger.add({("a", "d", "1"): RouteTally(requests=1, cost=DOLLAR // 2)})
        assert ledger.pending
        assert ledger.flush()
        assert not ledger.pending
    assert RouteTable(Database(tmp_path)).totals() == {
        ("a", "d", "1"): RouteTally(requests=6, cost=3 * DOLLAR)
    }


def test_what_cannot_be_written_is_kept_and_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(tmp_path)
    ledger = RouteLedger(RouteTable(database))
    ledger.add({("a", "d", "1"): RouteTally(requests=1)})
    (tmp_path / "penstock.db").rename(tmp_path / "aside")
    assert not ledger.flush()
    assert not ledger.flush()
    assert caplog.text.count("The router's books: kept in memory") == 1
    ledger.add({("a", "d", "1"): RouteTally(requests=1)})
    (tmp_path / "aside").rename(tmp_path / "penstock.db")
    assert ledger.flush()
    assert RouteTable(database).totals() == {("a", "d", "1"): RouteTally(requests=2)}


def test_without_a_table_nothing_is_written() -> None:
    ledger = RouteLedger()
    ledger.add({("a", "d", "1"): RouteTally(requests=1)})
    assert ledger.flush()


def decision(number: int) -> Decision:
    return Decision(
        request=f"r{number}",
        at=1.5,
        tenant="acme",
        region="maths",
        model_version="1",
        target=0.95,
        candidates=[Candidate(tier="1", reference="Phi-3-mini", quality=0.5)],
        chosen="1",
        vector=b"\0\1",
    )


def read(path: Path) -> list[Decision]:
    return [msgspec.json.decode(line, type=Decision) for line in path.read_bytes().splitlines()]


def test_decisions_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "new" / "decisions.jsonl"
    log = DecisionLog(path)
    assert log.flush()
    assert not path.exists()
    log.add(decision(1))
    log.add(decision(2))
    assert log.pending
    assert log.flush()
    other = DecisionLog(path)  # another process
    other.add(decision(3))
    assert other.flush()
    assert read(path) == [decision(1), decision(2), decision(3)]
    assert path.stat().st_mode & 0o077 == 0  # nobody else's business
    assert b'"text"' not in path.read_bytes()


def test_a_full_log_is_put_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    size = len(msgspec.json.encode(decision(1))) + 1
    log = DecisionLog(path, most_bytes=2 * size)
    for number in range(1, 7):
        log.add(decision(number))
        assert log.flush()
    assert read(path) == [decision(5), decision(6)]
    assert read(tmp_path / "decisions.jsonl.1") == [decision(3), decision(4)]


def test_a_log_that_cannot_be_written_keeps_a_bounded_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_module, "MOST_PENDING", 3)
    (tmp_path / "file").touch()
    log = DecisionLog(tmp_path / "file" / "decisions.jsonl")
    for number in range(5):
        log.add(decision(number))
        assert not log.flush()
    assert log.dropped == 2
    assert caplog.text.count("routing.log") == 1
    os.unlink(tmp_path / "file")
    assert log.flush()
    assert read(tmp_path / "file" / "decisions.jsonl") == [decision(2), decision(3), decision(4)]


def test_a_line_that_did_not_fit_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "decisions.jsonl"
    log = DecisionLog(path)
    log.add(decision(1))
    assert log.flush()
    write = os.write
    calls = []

    def full(file: int, data: memoryview) -> int:
        calls.append(file)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(file, data[:10])

    log.add(decision(2))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert not log.flush()
    assert read(path) == [decision(1)]
    assert log.flush()
    assert read(path) == [decision(1), decision(2)]


def test_another_process_with_the_lock_is_not_waited_for(tmp_path: Path) -> None:
    from penstock.hub.lock import locked

    log = DecisionLog(tmp_path / "decisions.jsonl")
    log.add(decision(1))
    with locked(tmp_path / "decisions.jsonl.lock", lambda: None):
        assert not log.flush()
    assert log.flush()
    assert read(tmp_path / "decisions.jsonl") == [decision(1)]


def test_one_absurd_count_is_bounded_and_holds_up_no_books(tmp_path: Path) -> None:
    table = RouteTable(Database(tmp_path))
    ledger = RouteLedger(table)
    ledger.add({("a", "d", "1"): RouteTally(requests=1, output_tokens=10**19, paired_tokens=10**30)})
    ledger.add({("a", "d", "1"): RouteTally(requests=1, cost=10**40)})
    assert ledger.flush()
    assert table.totals() == {
        ("a", "d", "1"): RouteTally(
            requests=2, output_tokens=10**12, paired_tokens=10**12, cost=10**12 * DOLLAR
        )
    }


def test_a_sum_that_can_never_be_written_is_told_of_once_and_the_others_are_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = RouteTable(Database(tmp_path))
    ledger = RouteLedger(table)
    ledger.add({("\ud800", "d", "1"): RouteTally(requests=7)})  # no text that SQLite takes
    ledger.add({("a", "d", "1"): RouteTally(requests=1)})
    assert ledger.flush()
    assert ledger.flush()
    assert table.totals() == {("a", "d", "1"): RouteTally(requests=1)}
    assert caplog.text.count("is left out: RouteTally(requests=7") == 1
