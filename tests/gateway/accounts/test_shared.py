"""Several workers, one limit: never more than it, nothing lost with a worker that dies, and life goes on
without the file."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config import TenantConfig
from penstock.gateway.accounts import Accounts, Caller, Hold, Price
from penstock.gateway.accounts.price import DOLLAR
from penstock.gateway.store import Database, UsageTable
from penstock.gateway.store.standings import FILE_NAME, boot
from penstock.gateway.store.usage import total
from penstock.protocol.errors import HTTPError
from penstock.protocol.shapes import UsageCount

HAMMER = Path(__file__).with_name("hammer.py")
ACME = Caller("acme")
PRICE = Price(input=10, output=10)  # a request of the hammer's may cost 1,000, and costs 500


class Worker:
    """A process that asks for `asked` requests once it is told to begin."""

    def __init__(self, folder: Path, limits: dict[str, Any], asked: int, then: str) -> None:
        arguments = [sys.executable, str(HAMMER), str(folder), json.dumps(limits), str(asked), then]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self) -> dict[str, int]:
        assert self.process.stdout is not None
        found: dict[str, int] = json.loads(self.process.stdout.readline())
        return found

    def end(self) -> int:
        self.process.communicate()
        return self.process.returncode


def hammer(folder: Path, limits: dict[str, Any], asked: int, then: str) -> list[dict[str, int]]:
    workers = [Worker(folder, limits, asked, then) for _ in range(2)]
    for worker in workers:
        worker.go()
    results = [worker.result() for worker in workers]
    for worker in workers:
        worker.go()
    assert [worker.end() for worker in workers] == [0, 0]
    return results


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Accounts]:
    accounts = Accounts.open(tmp_path, workers=2)
    yield accounts
    accounts.close(10**6)


def reserve(accounts: Accounts, now: float = 0.0, **limits: Any) -> Hold:
    return accounts.reserve(ACME, TenantConfig(name="acme", **limits), "m", PRICE, 10, 90, now)


def refused(accounts: Accounts, now: float = 0.0, **limits: Any) -> str:
    with pytest.raises(HTTPError) as caught:
        reserve(accounts, now, **limits)
    return caught.value.code


def test_two_workers_together_never_run_more_at_a_time_than_one_may(tmp_path: Path) -> None:
    results = hammer(tmp_path, {"concurrent": 31}, 200, "keep")
    assert sum(result["passed"] for result in results) == 31
    assert sum(result["concurrency_limit_exceeded"] for result in results) == 400 - 31


def test_two_workers_together_spend_a_budget_to_the_last_and_no_further(tmp_path: Path) -> None:
    # Each request holds 1,000 and costs 500 in the end: all is spent but what no request fits in.
    results = hammer(tmp_path, {"monthly_budget": 100_000 / DOLLAR}, 400, "settle")
    tally = total(UsageTable(Database(tmp_path)).totals())
    assert tally.ok == sum(result["passed"] for result in results)
    assert tally.cost == tally.ok * 500
    assert 100_000 - 4 * 1000 <= tally.cost <= 100_000  # each worker may still hold two at the end
    assert tally.refused == 800 - tally.ok


def test_two_workers_together_keep_to_requests_and_tokens_a_minute(tmp_path: Path) -> None:
    for name, limit in (("requests_per_minute", 20), ("tokens_per_minute", 2000)):
        results = hammer(tmp_path / name, {name: limit}, 50, "keep")
        passed = sum(result["passed"] for result in results)
        assert 20 <= passed <= 30  # one comes back every three seconds, while the test runs


def test_a_worker_that_is_killed_gives_back_what_it_held(tmp_path: Path, door: Accounts) -> None:
    limits = {"concurrent": 5, "monthly_budget": 5_000 / DOLLAR}
    worker = Worker(tmp_path, limits, 5, "crash")
    worker.go()
    assert worker.result()["passed"] == 5
    assert refused(door, 0.0, **limits) == "insufficient_quota"
    assert refused(door, 0.0, concurrent=5) == "concurrency_limit_exceeded"
    worker.go()
    assert worker.end() == -9
    holds = [reserve(door, 1.0, **limits) for _ in range(5)]
    assert refused(door, 2.0, **limits) == "insufficient_quota"
    assert len(holds) == 5


def test_a_worker_that_lives_keeps_what_it_holds(tmp_path: Path, door: Accounts) -> None:
    worker = Worker(tmp_path, {"concurrent": 2}, 2, "crash")
    worker.go()
    worker.result()
    for now in (0.0, 10.0, 1000.0):
        assert refused(door, now, concurrent=2) == "concurrency_limit_exceeded"
    worker.go()
    worker.end()


class Stuck:
    """Holds on to the shared file, as a worker does that was stopped at the wrong moment."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "run" / boot() / FILE_NAME, isolation_level=None)

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, *_: object) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


def test_while_the_file_is_stuck_a_worker_goes_on_with_its_part_of_the_limits(
    tmp_path: Path, door: Accounts, caplog: pytest.LogCaptureFixture
) -> None:
    limits = {"concurrent": 6, "requests_per_minute": 100}
    with Stuck(tmp_path):
        holds = [reserve(door, 0.0, **limits) for _ in range(3)]
        assert refused(door, 0.0, **limits) == "concurrency_limit_exceeded"
        door.settle(holds.pop(), UsageCount(10, 40), "ok", 0.0)
        holds.append(reserve(door, 0.0, **limits))
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "its own part of the limits" in caplog.text
    # A second later the file is tried again.
    shared = [reserve(door, 2.0, **limits) for _ in range(6)]
    assert refused(door, 2.0, **limits) == "concurrency_limit_exceeded"
    assert not any(hold.alone for hold in shared)


def test_what_a_stuck_file_was_not_told_it_learns_later(tmp_path: Path, door: Accounts) -> None:
    other = Accounts.open(tmp_path, workers=2)
    limits = {"monthly_budget": 3_000 / DOLLAR, "concurrent": 2}
    before = [reserve(door, 0.0, **limits), reserve(door, 0.0, **limits)]
    with Stuck(tmp_path):
        for hold in before:  # each costs 500
            door.settle(hold, UsageCount(10, 40), "ok", 0.0)
        alone = reserve(door, 0.0, monthly_budget=100_000 / DOLLAR)  # and this one 1,000
        door.settle(alone, UsageCount(10, 90), "ok", 0.0)
    assert refused(other, 1.0, **limits) == "concurrency_limit_exceeded"  # not yet
    door.due(2.0)
    fourth = reserve(other, 2.0, **limits)
    assert refused(other, 2.0, **limits) == "insufficient_quota"  # 2,000 spent, 1,000 held
    other.settle(fourth, UsageCount(10, 90), "ok", 2.0)
    door.flush()
    other.close(3.0)
    assert total(UsageTable(Database(tmp_path)).totals(tenant="acme")).cost == 3_000


def test_a_stuck_file_gives_no_budget_away(tmp_path: Path, door: Accounts) -> None:
    limits = {"monthly_budget": 10_000 / DOLLAR}
    for _ in range(3):
        door.settle(reserve(door, 0.0, **limits), UsageCount(10, 90), "ok", 0.0)
    with Stuck(tmp_path):
        passed = [reserve(door, 0.5, **limits) for _ in range(3)]  # half of the 7,000 that were left
        assert refused(door, 0.5, **limits) == "insufficient_quota"
        for hold in passed:
            door.settle(hold, UsageCount(10, 90), "ok", 0.5)
        assert refused(door, 0.5, **limits) == "insufficient_quota"
    rest = [reserve(door, 5.0, **limits) for _ in range(4)]
    assert len(rest) == 4
    assert refused(door, 5.0, **limits) == "insufficient_quota"


def test_a_stuck_file_gives_no_budget_away_of_a_tenant_that_this_worker_has_not_seen(
    tmp_path: Path, door: Accounts
) -> None:
    limits = {"monthly_budget": 10_000 / DOLLAR}
    other = Accounts.open(tmp_path, workers=2)
    for _ in range(10):
        other.settle(reserve(other, 0.0, **limits), UsageCount(10, 90), "ok", 0.0)
    assert other.flush()
    with Stuck(tmp_path):
        for now in (0.5, 0.6, 5.0):
            assert refused(door, now, **limits) == "insufficient_quota"
    other.close(6.0)


FULL = """
import pathlib, sys
from penstock.config import TenantConfig
from penstock.gateway.accounts import Accounts, Caller, Price
from penstock.gateway.store import Database, StandingFile, StoreError

folder = pathlib.Path(sys.argv[1])
with_room = Database(folder)
with (folder / "filler").open("wb", buffering=0) as filler:
    try:
        while filler.write(bytes(4096)) == 4096:
            pass
    except OSError:
        pass
try:
    StandingFile(folder)
except StoreError as error:
    print(error)
accounts = Accounts.open(folder, workers=2)
limits = TenantConfig(name="acme", concurrent=2)
def reserve(now):
    return accounts.reserve(Caller("acme"), limits, "m", Price(), 1, 1, now)
first = reserve(1.0)
print("alone", first.alone)
(folder / "filler").unlink()
print("alone", reserve(3.0).alone)
"""


def test_on_a_full_disk_workers_start_and_share_their_limits_when_there_is_room(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=200k none {tmp_path}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("a disk to fill cannot be mounted here")
    command = [f'{mount} && exec "$0" -c "$1" "$2"', sys.executable, FULL, str(tmp_path)]
    done = subprocess.run(["unshare", "-rm", "sh", "-c", *command], capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert said[0].startswith("The disk is full")
    assert said[1:] == ["alone True", "alone False"]
