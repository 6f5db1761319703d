"""`penstock usage`: the ledger's totals, for people, for scripts and for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.cli.app import run
from penstock.gateway.store import Database, Tally, UsageTable
from penstock.gateway.store.usage import DOLLAR

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))

    def run_usage(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert run(["usage", *arguments]) == code
        output = capsys.readouterr()
        return output.out, output.err

    return run_usage


@pytest.fixture
def january(tmp_path: Path) -> None:
    with closing(Database(tmp_path / "home" / "state")) as database:
        UsageTable(database).add(
            {
                ("acme", "small", "2026-01-30"): Tally(3, 1000, 200, 500, 0, DOLLAR // 4, ok=2, aborted=1),
                ("acme", "large", "2026-01-31"): Tally(2, 10, 0, 5, 70, 3 * DOLLAR + 1, ok=1, failed=1),
                ("zoo", "small", "2026-01-31"): Tally(1_000_001, refused=1_000_001),
                ("zoo", "small", "2026-02-01"): Tally(1, 1, 0, 1, 0, 5, ok=1),
            }
        )


def test_help_has_examples(usage: Run) -> None:
    assert "penstock usage --month" in usage("--help")[0].split("Examples")[1]


def test_a_month_is_shown_by_tenant_and_model_with_its_total(usage: Run, january: None) -> None:
    out, _ = usage("--month", "2026-01")
    head, *lines = [line.split() for line in out.splitlines()[2:]]
    assert " ".join(head) == (
        "TENANT MODEL REQUESTS OK ABORTED FAILED REFUSED PROMPT CACHED ANSWER SAVED COST"
    )
    assert lines == [
        ["acme", "large", "2", "1", "0", "1", "0", "10", "0", "5", "70", "$3.000000000001"],
        ["acme", "small", "3", "2", "1", "0", "0", "1,000", "200", "500", "0", "$0.25"],
        ["zoo", "small", "1,000,001", "0", "0", "0", "1,000,001", "0", "0", "0", "0", "$0.00"],
        ["TOTAL", "1,000,006", "3", "1", "1", "1,000,001", "1,010", "200", "505", "70", "$3.250000000001"],
    ]
    widths = {len(line) for line in out.splitlines()[2:]}
    assert len(widths) == 1  # the last column ends where it should


def test_one_line_needs_no_total(usage: Run, january: None) -> None:
    out, _ = usage("--month", "2026-01", "--tenant", "zoo")
    assert "TOTAL" not in out
    assert "zoo" in out


def test_json_has_exact_numbers(usage: Run, january: None) -> None:
    found = json.loads(usage("--since", "2026-01-31", "--by", "day,tenant", "--json")[0])
    assert (found["since"], found["until"]) == ("2026-01-31", None)
    assert [(row["day"], row["tenant"], row["requests"]) for row in found["rows"]] == [
        ("2026-01-31", "acme", 2),
        ("2026-01-31", "zoo", 1_000_001),
        ("2026-02-01", "zoo", 1),
    ]
    assert found["rows"][0]["cost_usd"] == "3.000000000001"
    assert found["total"]["cost_usd"] == "3.000000000006"
    assert found["total"]["completion_tokens"] == 6


def test_csv_has_a_head_and_a_line_for_each(usage: Run, january: None) -> None:
    out, _ = usage("--month", "2026-01", "--by", "tenant", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["tenant"] for row in rows] == ["acme", "zoo"]
    assert rows[0]["cost_usd"] == "3.250000000001"
    assert rows[1]["refused"] == "1000001"


def test_days_are_counted_from_since_to_until_with_both(usage: Run, january: None) -> None:
    found = json.loads(usage("--since", "2026-01-30", "--until", "2026-01-30", "--json")[0])
    assert found["total"]["requests"] == 3
    assert json.loads(usage("--until", "2026-01-31", "--model", "small", "--json")[0])["total"]["ok"] == 2


def test_this_month_is_meant_unless_another_is_named(usage: Run, tmp_path: Path) -> None:
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    with closing(Database(tmp_path / "home" / "state")) as database:
        UsageTable(database).add(
            {("acme", "m", today): Tally(1, ok=1), ("acme", "m", "2020-01-01"): Tally(7, ok=7)}
        )
    assert json.loads(usage("--json")[0])["total"]["requests"] == 1


def test_nothing_is_said_when_nothing_was_used(usage: Run, tmp_path: Path) -> None:
    out, err = usage("--month", "2026-02")
    assert (out, err) == ("", "Nothing was used from 2026-02-01 until 2026-02-28.\n")
    assert json.loads(usage("--month", "2026-12", "--json")[0]) == {
        "since": "2026-12-01",
        "until": "2026-12-31",
        "rows": [],
        "total": json.loads(usage("--json")[0])["total"],
    }
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("month", ["0001-01", "9999-12"])
def test_the_first_and_the_last_month_there_is_can_be_asked_for(usage: Run, month: str) -> None:
    assert json.loads(usage("--month", month, "--json")[0])["until"] == f"{month}-31"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--by", "colour"],
        ["--by", ""],
        ["--by", "tenant,,day"],
        ["--month", "January"],
        ["--month", "2026-13"],
        ["--month", "0000-01"],
        ["--month", "2026-1"],
        ["--month", "2026-01", "--since", "2026-01-01"],
        ["--since", "yesterday"],
        ["--since", "2026-02-30"],
        ["--until", "20260101"],
        ["--since", "2026-02-01", "--until", "2026-01-01"],
        ["--json", "--csv"],
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(usage: Run, arguments: list[str]) -> None:
    out, err = usage(*arguments, code=2)
    assert out == ""
    assert err.startswith("penstock: ")
    assert err.count("\n") == 1
