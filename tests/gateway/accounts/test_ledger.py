"""The ledger: written in groups, nothing lost or counted twice when it cannot be written."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.gateway.accounts import Ledger
from penstock.gateway.store import Database, StoreError, Tally, UsageTable
from penstock.gateway.store.usage import total
from penstock.protocol.errors import HTTPError

DAY = "2026-01-31"


def used(table: UsageTable) -> Tally:
    return total(table.totals())


def test_usage_is_written_in_groups_some_time_apart(tmp_path: Path) -> None:
    table = UsageTable(Database(tmp_path))
    ledger = Ledger(table)
    assert not ledger.due(100.0)
    for _ in range(100):
        ledger.add("acme", "m", DAY, "ok", prompt=10, cached=3, completion=5, saved=2, cost=7)
    assert used(table) == Tally()
    assert ledger.due(100.0)
    assert ledger.flush()
    assert used(table) == Tally(100, 1000, 300, 500, 200, 700, ok=100)
    ledger.add("acme", "m", DAY, "aborted", completion=1)
    assert not ledger.due(100.04)
    assert ledger.due(100.06)


def test_flushing_nothing_writes_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path)
    ledger = Ledger(UsageTable(database))
    before = database.connection.total_changes
    assert ledger.flush()
    assert database.connection.total_changes == before


def test_while_the_disk_is_full_usage_is_kept_and_written_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    database = Database(tmp_path)
    table = UsageTable(database)
    ledger = Ledger(table)
    (pages,) = database.connection.execute("PRAGMA page_count").fetchone()
    database.connection.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(1000):
        ledger.add(f"tenant-{number}", "m" * 100, DAY, "ok", cost=1)
    now = 0.0
    for _ in range(5):
        now += 1.0
        assert ledger.due(now)
        assert not ledger.flush()
        assert not ledger.due(now + 0.5)  # a full disk is not tried twenty times a second
        ledger.add("tenant-7", "m" * 100, DAY, "ok", cost=1)
    assert ledger.spent("tenant-7", "2026-01") == 6
    assert used(table) == Tally()
    database.connection.execute("PRAGMA max_page_count = 1000000")
    assert ledger.flush()
    assert ledger.flush()
    assert used(table) == Tally(requests=1005, cost=1005, ok=1005)
    assert ledger.spent("tenant-7", "2026-01") == 6
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "The disk is full" in caplog.text


def test_a_file_that_another_holds_for_long_costs_no_usage(tmp_path: Path) -> None:
    table = UsageTable(Database(tmp_path, busy_seconds=0.01))
    ledger = Ledger(table)
    ledger.add("acme", "m", DAY, "failed")
    with Database(tmp_path).write():
        assert not ledger.flush()
    assert ledger.flush()
    assert used(table) == Tally(requests=1, failed=1)


def test_memory_does_not_grow_with_requests_that_cannot_be_written(tmp_path: Path) -> None:
    ledger = Ledger(UsageTable(Database(tmp_path)))
    for number in range(10_000):
        ledger.add("acme", f"model-{number % 3}", DAY, "ok")
    assert len(ledger._pending) == 3


def test_flushes_in_a_thread_lose_nothing_of_what_comes_meanwhile(tmp_path: Path) -> None:
    table = UsageTable(Database(tmp_path))
    ledger = Ledger(table)
    done = threading.Event()

    def flush() -> None:
        while not done.is_set():
            assert ledger.flush()

    thread = threading.Thread(target=flush)
    thread.start()
    for number in range(5_000):
        ledger.add("acme", "m", DAY, "ok", cost=number)
        if number % 1000 == 0:
            assert ledger.spent("acme", "2026-01") == number * (number + 1) // 2
    done.set()
    thread.join()
    ledger.flush()
    assert used(table) == Tally(requests=5_000, cost=5_000 * 4_999 // 2, ok=5_000)


def test_what_was_spent_is_not_guessed_when_it_cannot_be_read(tmp_path: Path) -> None:
    database = Database(tmp_path)
    table = UsageTable(database)
    ledger = Ledger(table)
    database.close()
    with pytest.raises(StoreError):
        table.month_cost("acme", "2026-01")
    with pytest.raises(HTTPError, match="Budgets cannot be read") as caught:
        ledger.spent("acme", "2026-01")
    assert caught.value.status == 503
    assert str(tmp_path) not in str(caught.value)


def test_without_a_table_totals_stay_in_memory() -> None:
    ledger = Ledger()
    ledger.add("acme", "m", DAY, "ok", cost=5)
    assert not ledger.due(1e9)
    assert ledger.flush()
    assert ledger.spent("acme", "2026-01") == 5


def test_usage_that_can_never_be_written_is_told_of_once_and_the_rest_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = UsageTable(Database(tmp_path))
    ledger = Ledger(table)
    ledger.add("acme", "m", DAY, "ok", completion=10**19)  # beyond SQLite's integers
    ledger.add("zoo", "m", DAY, "ok", completion=5)
    assert ledger.flush()
    assert ledger.flush()
    assert used(table) == Tally(requests=1, completion=5, ok=1)
    assert caplog.text.count("is left out: Tally(requests=1") == 1
