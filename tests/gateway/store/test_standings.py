"""What workers share: one change at a time, nothing left behind by the dead."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.gateway.store import StandingFile, StoreError
from penstock.gateway.store.standings import boot


def count(state: bytes | None) -> tuple[bytes, int]:
    number = int(state or b"0") + 1
    return b"%d" % number, number


def test_workers_see_each_other_s_changes(tmp_path: Path) -> None:
    one, two = StandingFile(tmp_path), StandingFile(tmp_path)
    assert [file.change("acme", count) for file in (one, two, one, two)] == [1, 2, 3, 4]
    assert two.change("zoo", count) == 1


def test_a_change_that_fails_or_changes_nothing_leaves_the_row_as_it_was(tmp_path: Path) -> None:
    file = StandingFile(tmp_path)
    file.change("acme", count)

    def fail(state: bytes | None) -> tuple[bytes, None]:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        file.change("acme", fail)
    assert file.change("acme", lambda state: (None, state)) == b"1"
    assert file.change("acme", count) == 2


def test_a_file_that_another_holds_on_to_is_given_up_soon(tmp_path: Path) -> None:
    file = StandingFile(tmp_path)
    other = sqlite3.connect(file.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another process"):
        file.change("acme", count)
    other.execute("ROLLBACK")
    assert file.change("acme", count) == 1
    other.close()


def test_what_an_earlier_boot_left_is_removed_and_never_read(tmp_path: Path) -> None:
    earlier = tmp_path / "run" / "earlier-boot"
    earlier.mkdir(parents=True)
    (earlier / "standings.db").write_bytes(b"rubbish")
    assert StandingFile(tmp_path).change("acme", count) == 1
    assert [folder.name for folder in (tmp_path / "run").iterdir()] == [boot()]


def test_a_worker_is_known_to_be_alive_until_it_is_killed(tmp_path: Path) -> None:
    mine = StandingFile(tmp_path).worker
    program = (
        "import sys; from pathlib import Path; from penstock.gateway.store import StandingFile\n"
        "file = StandingFile(Path(sys.argv[1])); print(file.worker.id, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        other = process.stdout.readline().strip()
        assert mine.is_alive(other)
        assert mine.is_alive(other)
        process.kill()
        process.wait()
        assert not mine.is_alive(other)
        assert not mine.is_alive(other)
    assert not mine.is_alive("somebody")


def test_workers_that_end_leave_nothing(tmp_path: Path) -> None:
    one, two = StandingFile(tmp_path), StandingFile(tmp_path)
    folder = one.path.parent
    assert len(list(folder.glob("*.worker"))) == 2
    one.close()
    assert not two.worker.is_alive(one.worker.id)
    two.close()
    assert list(folder.glob("*.worker")) == []
