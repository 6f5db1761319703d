"""API keys, without a server: those of the settings and those of the store."""

from __future__ import annotations

import contextlib
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.gateway.accounts import Caller, KeyRing
from penstock.gateway.accounts import keys as keys_module
from penstock.gateway.accounts.keys import mint
from penstock.gateway.store import Database, KeyTable
from penstock.protocol.errors import HTTPError, failure

PLAIN = ("one", "two")
NOW = 1_700_000_000


class Clocks:
    """A monotonic clock and a calendar's, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wall_now = float(NOW)

    def clock(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.wall_now


@pytest.fixture
def table(tmp_path: Path) -> KeyTable:
    return KeyTable(Database(tmp_path))


def bearer(key: str | bytes) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + (key.encode() if isinstance(key, str) else key)}


def add(table: KeyTable, tenant: str = "acme", *, admin: bool = False, expires: int | None = None) -> str:
    key, record = mint("a key", tenant, admin=admin, created=NOW, expires=expires)
    table.add(record)
    return key


def refusal(ring: KeyRing, headers: dict[bytes, bytes]) -> bytes:
    with pytest.raises(HTTPError) as caught:
        ring.check(headers)
    answer = failure(caught.value)
    assert answer.status == 401
    assert answer.headers == {"WWW-Authenticate": "Bearer"}
    assert answer.body.code == "invalid_api_key"
    return answer.encode()


def test_without_keys_everybody_may_call_as_the_default_tenant(table: KeyTable) -> None:
    for ring in (KeyRing(), KeyRing((), table)):
        assert not ring.locked
        for header in ({}, bearer("anything"), {b"x-api-key": b"x"}, {b"authorization": b"nonsense"}):
            assert ring.check(header) == Caller("default", "", "", False)


@pytest.mark.parametrize("header", [b"Bearer one", b"bearer one", b"Bearer two", b"Bearer  one "])
def test_a_configured_key_may_call(header: bytes) -> None:
    assert KeyRing(PLAIN).check({b"authorization": header}).tenant == "default"
    assert KeyRing(PLAIN).check({b"x-api-key": header.split()[1]}).tenant == "default"


@pytest.mark.parametrize(
    "header",
    [b"", b"Bearer", b"Bearer ", b"Bearer three", b"Bearer onetwo", b"Basic one", b"one", b"Bearer \xff"],
)
def test_anything_else_is_a_401(header: bytes) -> None:
    answer = refusal(KeyRing(PLAIN), {b"authorization": header})
    assert b"one" not in answer
    refusal(KeyRing(PLAIN), {})
    refusal(KeyRing(PLAIN), {b"x-api-key": b""})


def test_keys_may_have_any_characters() -> None:
    KeyRing(("schlüssel 🔑",)).check(bearer("schlüssel 🔑"))


def test_every_configured_key_has_a_salt_of_its_own_that_does_not_give_it_away() -> None:
    ring = KeyRing(PLAIN)
    salts = {ring.check(bearer(key)).salt for key in ("one", "two", "one")}
    assert len(salts) == 2
    assert not any(not salt or "one" in salt or "two" in salt for salt in salts)


def test_a_stored_key_says_whose_it_is(table: KeyTable) -> None:
    key, boss = add(table), add(table, "zoo", admin=True)
    ring = KeyRing((), table)
    caller = ring.check(bearer(key))
    assert (caller.tenant, caller.admin, caller.key_id) == ("acme", False, key.split("-")[2])
    assert ring.check({b"x-api-key": boss.encode()}).admin
    assert ring.check(bearer(boss)).tenant == "zoo"


def test_keys_of_one_tenant_share_a_salt_and_no_other_tenant_has_it(table: KeyTable) -> None:
    ring = KeyRing(PLAIN, table)
    keys = [add(table), add(table), add(table, "zoo"), "one"]
    ring = KeyRing(PLAIN, table)
    salts = [ring.check(bearer(key)).salt for key in keys]
    assert salts[0] == salts[1]
    assert len(set(salts)) == 3


def test_a_bearer_goes_first_but_either_header_may_have_the_key(table: KeyTable) -> None:
    key = add(table)
    ring = KeyRing((), table)
    assert ring.check({**bearer("another service's"), b"x-api-key": key.encode()}).tenant == "acme"
    assert ring.check({**bearer(key), b"x-api-key": b"another service's"}).tenant == "acme"
    assert ring.check({b"authorization": b"Basic abc", b"x-api-key": key.encode()}).tenant == "acme"


def test_wrong_revoked_and_expired_keys_get_the_very_same_answer(table: KeyTable) -> None:
    clocks = Clocks()
    revoked, expiring, good = add(table), add(table, expires=NOW + 60), add(table)
    table.revoke(revoked.split("-")[2], NOW)
    ring = KeyRing((), table, clock=clocks.clock, wall=clocks.wall)
    ring.check(bearer(expiring))
    clocks.wall_now += 60
    answers = {
        refusal(ring, bearer(key))
        for key in (
            revoked,
            expiring,
            good[:-1],
            good[:-1] + ("a" if good[-1] != "a" else "b"),
            good.upper(),
            good + "a",
            good.replace(good.split("-")[2], "0" * 12),
            "sk-penstock--",
            "sk-penstock-" + good.split("-")[2] + "-",
            "x",
        )
    }
    assert len(answers) == 1
    ring.check(bearer(good))


def test_a_huge_bearer_is_refused_unread(table: KeyTable, monkeypatch: pytest.MonkeyPatch) -> None:
    key = add(table)
    ring = KeyRing(PLAIN, table)
    hashed: list[int] = []
    digest = keys_module._digest
    monkeypatch.setattr(keys_module, "_digest", lambda key: hashed.append(len(key)) or digest(key))
    refusal(ring, bearer("x" * 2**20))
    refusal(ring, bearer(key + "x" * 2**20))
    refusal(ring, {b"x-api-key": b"x" * 2**20})
    assert hashed == []
    ring.check(bearer(key))
    assert hashed == [len(key)]


def test_a_long_configured_key_still_opens() -> None:
    key = "k" * 5000
    KeyRing((key,)).check(bearer(key))


def test_unknown_ids_cost_the_same_comparisons_as_known_ones(
    table: KeyTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = add(table)
    ring = KeyRing(PLAIN, table)
    compared: list[int] = []
    compare = keys_module.hmac.compare_digest
    monkeypatch.setattr(
        keys_module.hmac, "compare_digest", lambda a, b: compared.append(len(a)) or compare(a, b)
    )
    counts = []
    for given in (key[:-1] + "2", key.replace(key.split("-")[2], "0" * 12), "rubbish", "one"):
        compared.clear()
        with contextlib.suppress(HTTPError):
            ring.check(bearer(given))
        counts.append(len(compared))
    assert set(counts) == {3}


def test_a_change_by_another_process_is_seen_after_a_second(tmp_path: Path, table: KeyTable) -> None:
    clocks = Clocks()
    key = add(table)
    ring = KeyRing((), table, clock=clocks.clock, wall=clocks.wall)
    ring.check(bearer(key))
    run = [sys.executable, "-m", "penstock", "keys"]
    subprocess.run(
        [*run, "revoke", key.split("-")[2], "--state-dir", str(tmp_path)], check=True, cwd=tmp_path
    )
    clocks.now = 0.99
    ring.check(bearer(key))
    clocks.now = 1.0
    refusal(ring, bearer(key))
    made = subprocess.run(
        [*run, "create", "another", "--state-dir", str(tmp_path)],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    clocks.now = 2.0
    assert ring.check(bearer(made.stdout.strip())).tenant == "default"


def test_the_first_key_locks_a_server_that_was_open(table: KeyTable) -> None:
    clocks = Clocks()
    ring = KeyRing((), table, clock=clocks.clock)
    ring.check({})
    key = add(table)
    clocks.now = 1.0
    assert ring.locked
    refusal(ring, {})
    ring.check(bearer(key))


def test_when_the_last_key_is_revoked_the_server_stays_locked(table: KeyTable) -> None:
    key = add(table)
    table.revoke(key.split("-")[2], NOW)
    ring = KeyRing((), table)
    assert ring.locked
    refusal(ring, {})


def test_while_the_store_cannot_be_read_known_keys_go_on_working(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(tmp_path)
    key = add(KeyTable(database))
    clocks = Clocks()
    ring = KeyRing((), KeyTable(database), clock=clocks.clock)
    database.close()
    for clocks.now in (1.0, 2.0, 3.0):
        ring.check(bearer(key))
    assert len(caplog.records) == 1
    refusal(ring, bearer("x"))


def test_keys_are_nowhere_to_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    database = Database(tmp_path)
    table = KeyTable(database)
    key = add(table)
    secret = key.rpartition("-")[2]
    ring = KeyRing(("plain-secret",), table)
    ring.check(bearer(key))
    refusal(ring, bearer(key + "x"))
    database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    stored = (tmp_path / "penstock.db").read_bytes()
    shown = repr(ring) + repr(table.all()) + caplog.text
    assert secret.encode() not in stored
    assert secret not in shown
    assert "plain-secret" not in shown
    assert repr(table.all()[0].digest) not in shown


def test_no_two_keys_are_alike_and_each_has_256_bits(table: KeyTable) -> None:
    keys = {add(table) for _ in range(100)}
    assert len({key.split("-")[2] for key in keys}) == len({key.split("-")[3] for key in keys}) == 100
    assert all(len(key.split("-")[3]) * 5 >= 256 for key in keys)


def test_a_store_that_is_lost_leaves_the_door_locked_with_the_keys_last_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clocks = Clocks()
    table = KeyTable(Database(tmp_path / "state"))
    key = add(table)
    ring = KeyRing((), table, clock=clocks.clock)
    shutil.rmtree(tmp_path / "state")
    for replaced in (False, True):
        if replaced:
            add(KeyTable(Database(tmp_path / "state")))
        for _ in range(3):
            clocks.now += 2.0
            refusal(ring, {})
            assert ring.check(bearer(key)).tenant == "acme"
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert f"The state in {tmp_path / 'state'} is gone" in caplog.text


def test_a_ring_that_is_told_of_keys_demands_one_though_the_store_is_empty(table: KeyTable) -> None:
    ring = KeyRing((), table, locked=True)
    assert ring.locked
    assert ring.locks_with(())
    refusal(ring, {})
    refusal(ring, bearer("anything"))
    ring.configure(PLAIN)
    ring.check(bearer("one"))
