"""`penstock keys`: made, shown once, listed, revoked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.app import run
from penstock.gateway.accounts import KeyRing
from penstock.gateway.store import Database, KeyTable
from penstock.protocol.errors import HTTPError

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `penstock keys ...` in a place of its own: what it printed, and what it said beside that."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))

    def run_keys(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert run(["keys", *arguments]) == code
        output = capsys.readouterr()
        return output.out, output.err

    return run_keys


def ring(tmp_path: Path) -> KeyRing:
    with closing(Database(tmp_path / "home" / "state")) as database:
        return KeyRing((), KeyTable(database))


@pytest.mark.parametrize("command", ["create", "list", "revoke"])
def test_every_command_has_help_with_examples(keys: Run, command: str) -> None:
    text, _ = keys(command, "--help")
    assert f"penstock keys {command}" in text.split("Examples")[1]


def test_a_new_key_alone_goes_to_stdout_and_opens_the_door(keys: Run, tmp_path: Path) -> None:
    out, err = keys("create", "laptop", "--tenant", "acme")
    assert re.fullmatch(r"sk-penstock-[0-9a-f]{12}-[a-z2-7]{52}\n", out)
    assert "shown this once" in err
    assert out.strip() not in err
    caller = ring(tmp_path).check({b"authorization": b"Bearer " + out.strip().encode()})
    assert (caller.tenant, caller.admin) == ("acme", False)


def test_a_key_can_be_an_admin_s_and_end_by_itself(keys: Run) -> None:
    out, _ = keys("create", "ops", "--admin", "--expires", "90d", "--json")
    made: dict[str, Any] = json.loads(out)
    assert (made["tenant"], made["admin"], made["state"]) == ("default", True, "active")
    assert made["key"].startswith(f"sk-penstock-{made['id']}-")
    (listed,) = json.loads(keys("list", "--json")[0])
    del made["key"]
    assert listed == made


def test_the_list_shows_every_key_and_no_secret(keys: Run) -> None:
    first = keys("create", "one", "--tenant", "acme")[0].strip()
    keys("create", "the second key", "--admin")
    keys("revoke", first.split("-")[2])
    lines = keys("list")[0].splitlines()
    assert lines[0].split() == ["ID", "NAME", "TENANT", "STATE", "CREATED", "EXPIRES"]
    shown = "\n".join(lines)
    assert re.search(rf"{first.split('-')[2]} +one +acme +revoked ", shown)
    assert re.search(r"the second key +default +active, admin .* never", shown)
    assert first.split("-")[3] not in shown


def test_a_revoked_key_is_refused_also_when_the_whole_key_was_given(keys: Run, tmp_path: Path) -> None:
    key = keys("create", "one")[0].strip()
    keyring = ring(tmp_path)
    keyring.check({b"x-api-key": key.encode()})
    out, err = keys("revoke", key)
    assert out == f"Key {key.split('-')[2]} is revoked.\n"
    assert key.split("-")[3] not in out + err
    with pytest.raises(HTTPError):
        ring(tmp_path).check({b"x-api-key": key.encode()})


def test_what_there_is_not_cannot_be_revoked(keys: Run) -> None:
    for _ in range(2):  # without a store, and with one
        _, err = keys("revoke", "0123456789ab", code=2)
        assert err == (
            "penstock: There is no key '0123456789ab'; `penstock keys list` shows those there are.\n"
        )
        keys("create", "one")


def test_looking_makes_no_files(keys: Run, tmp_path: Path) -> None:
    assert keys("list") == ("", "There are no keys yet; `penstock keys create NAME` makes one.\n")
    assert keys("list", "--json") == ("[]\n", "")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["", "--tenant", "acme"],
        ["x" * 101],
        ["bell\a"],
        ["one", "--tenant", "two words"],
        ["one", "--tenant", ""],
        ["one", "--tenant", "x" * 129],
        ["one", "--expires", "soon"],
        ["one", "--expires", "-1d"],
        ["one", "--expires", "0d"],
        ["one", "--expires", "9999999d"],
    ],
)
def test_names_and_times_that_are_none_are_refused_in_a_sentence(
    keys: Run, tmp_path: Path, arguments: list[str]
) -> None:
    out, err = keys("create", *arguments, code=2)
    assert out == ""
    assert err.startswith("penstock: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "home").exists()


def test_the_state_is_where_the_flag_or_the_file_says(keys: Run, tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text("state_dir: ./configured\ntenants:\n  acme: {concurrent: 2}\n")
    _, err = keys("create", "one", "--tenant", "zoo")
    assert "Tenant zoo is not in the configuration file." in err
    assert "not in" not in keys("create", "two", "--tenant", "acme")[1]
    keys("create", "three", "--state-dir", "named")
    assert (tmp_path / "configured" / "penstock.db").exists()
    assert (tmp_path / "named" / "penstock.db").exists()
    assert len(json.loads(keys("list", "--json")[0])) == 2


def test_a_damaged_store_is_said_in_a_sentence(keys: Run, tmp_path: Path) -> None:
    (tmp_path / "home" / "state").mkdir(parents=True)
    (tmp_path / "home" / "state" / "penstock.db").write_bytes(b"nonsense" * 1000)
    _, err = keys("list", code=1)
    assert "is damaged or not a database of Penstock's" in err
