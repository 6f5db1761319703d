"""The file of keys and ledger: private, brought up to date, and plain about what is wrong with it."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.gateway.store import Database, KeyRecord, KeyTable, StoreError, Tally, UsageTable, state_folder
from penstock.gateway.store import database as database_module
from penstock.gateway.store.schema import MIGRATIONS

KEY = KeyRecord("0123456789ab", "laptop", "acme", b"digest", False, 1_700_000_000)


def test_the_file_and_its_folder_are_for_their_owner_alone(tmp_path: Path) -> None:
    database = Database(tmp_path / "state")
    KeyTable(database).add(KEY)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").iterdir()} == {0o600}
    assert (tmp_path / "state" / "penstock.db-wal").exists()


def test_what_one_connection_writes_others_read(tmp_path: Path) -> None:
    one, two = KeyTable(Database(tmp_path)), KeyTable(Database(tmp_path))
    before = two.version()
    one.add(KEY)
    assert two.all() == [KEY]
    assert two.version() != before


def test_state_lives_under_the_home_unless_a_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", "/somewhere/penstock")
    assert state_folder(None) == Path("/somewhere/penstock/state")
    assert state_folder("/elsewhere") == Path("/elsewhere")


def test_a_file_of_a_newer_penstock_is_refused_and_left_alone(tmp_path: Path) -> None:
    Database(tmp_path).close()
    with sqlite3.connect(tmp_path / "penstock.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=r"newer Penstock \(schema 99.*--state-dir"):
        Database(tmp_path)


def test_an_older_file_is_brought_up_to_date_with_all_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Database(tmp_path)
    KeyTable(old).add(KEY)
    old.close()
    step = ("ALTER TABLE keys ADD COLUMN colour TEXT",)
    monkeypatch.setattr(database_module, "MIGRATIONS", (*MIGRATIONS, step))
    database = Database(tmp_path)
    assert database.connection.execute("SELECT name, colour FROM keys").fetchall() == [("laptop", None)]
    assert database.connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)


def test_a_step_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Database(tmp_path).close()
    step = ("ALTER TABLE keys ADD COLUMN colour TEXT", "ALTER TABLE nonsense ADD COLUMN colour TEXT")
    monkeypatch.setattr(database_module, "MIGRATIONS", (*MIGRATIONS, step))
    with pytest.raises(StoreError):
        Database(tmp_path)
    monkeypatch.undo()
    columns = Database(tmp_path).connection.execute("PRAGMA table_info(keys)").fetchall()
    assert "colour" not in [column[1] for column in columns]


@pytest.mark.parametrize(
    "content", [b"This is not a database at all. " * 400, b"SQLite format 3\0" + b"\x7f" * 9000]
)
def test_a_damaged_file_is_named_and_kept(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "penstock.db").write_bytes(content)
    with pytest.raises(StoreError, match=r"penstock\.db is damaged or not a database.*backup"):
        Database(tmp_path)
    assert (tmp_path / "penstock.db").read_bytes() == content


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot be written.*--state-dir"):
        Database(tmp_path / "file" / "state")


def test_a_full_disk_is_said_and_leaves_no_half_of_a_change(tmp_path: Path) -> None:
    database = Database(tmp_path)
    table = UsageTable(database)
    table.add({("t", "m", "2026-01-01"): Tally(requests=1, ok=1)})
    (pages,) = database.connection.execute("PRAGMA page_count").fetchone()
    database.connection.execute(f"PRAGMA max_page_count = {pages}")
    many = {(f"tenant-{number}", "m" * 100, "2026-01-01"): Tally(requests=1, ok=1) for number in range(1000)}
    with pytest.raises(StoreError, match="The disk is full"):
        table.add(many)
    assert len(table.totals()) == 1
    database.connection.execute("PRAGMA max_page_count = 1000000")
    table.add(many)
    assert len(table.totals()) == 1001


def test_who_waits_too_long_for_another_writer_is_told(tmp_path: Path) -> None:
    other = Database(tmp_path)
    table = KeyTable(Database(tmp_path, busy_seconds=0.01))
    with other.write(), pytest.raises(StoreError, match="another process"):
        table.add(KEY)
    table.add(KEY)


def test_a_process_that_comes_and_goes_takes_nothing_from_one_that_stays(tmp_path: Path) -> None:
    """A server has several connections, and the command line opens and closes the file beside it."""
    keys, usage = KeyTable(Database(tmp_path)), UsageTable(Database(tmp_path))
    program = (
        "import sys; from pathlib import Path; from penstock.gateway.store import *\n"
        "database = Database(Path(sys.argv[1]))\n"
        "print(sum(row.tally.requests for row in UsageTable(database).totals()))\n"
        "KeyTable(database).add(KeyRecord(sys.argv[2], 'n', 't', b'd', False, 1))\n"
        "database.close()"
    )
    for number in range(3):
        usage.add({("t", "m", "2026-01-01"): Tally(requests=1)})
        command = [sys.executable, "-c", program, str(tmp_path), f"key{number}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert int(done.stdout) == number + 1
        assert len(keys.all()) == number + 1


def test_several_processes_may_make_the_file_at_once(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from penstock.gateway.store import *\n"
        "sys.stdin.readline()\n"
        "table = UsageTable(Database(Path(sys.argv[1]), busy_seconds=5))\n"
        "table.add({('t', 'm', '2026-01-01'): Tally(requests=1)})"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "state")], stdin=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        process.communicate()
    assert [process.returncode for process in started] == [0, 0, 0]
    (row,) = UsageTable(Database(tmp_path / "state")).totals()
    assert row.tally.requests == 3
