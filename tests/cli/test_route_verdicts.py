"""`penstock route export`, `forget` and the regions of `report`: what the monitor has kept of answers."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.aio.books import RouteTally
from penstock.aio.evaluate.dataset import read_dataset
from penstock.aio.judges.verdict import Outcome
from penstock.aio.monitor import Change
from penstock.cli.app import INTERRUPTED, run
from penstock.gateway.store import Database
from penstock.gateway.store.learning import LearningTable
from penstock.gateway.store.routes import RouteTable
from penstock.gateway.store.verdicts import VerdictRow, VerdictTable

JANUARY_31 = 1_769_817_600
ROW = VerdictRow(
    at=JANUARY_31,
    tenant="acme",
    request="r1",
    tier="small",
    model="tiny-1b",
    expert="expert",
    reference="Phi-3-mini",
    region="maths",
    kind="number",
    judge="final number",
    outcome="same",
    score=0.97,
)
Route = Callable[..., tuple[str, str]]
Fill = Callable[..., None]


@pytest.fixture
def route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Route:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))

    def run_route(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert run(["route", *arguments]) == code
        output = capsys.readouterr()
        return output.out, output.err

    return run_route


@pytest.fixture
def fill(tmp_path: Path) -> Fill:
    def add(count: int, outcome: Outcome = "same", **fields: object) -> None:
        with closing(Database(tmp_path / "home" / "state")) as database:
            table = VerdictTable(database)
            for number in range(count):
                row = dataclasses.replace(ROW, outcome=outcome, **fields)  # type: ignore[arg-type]
                if row.question is not None:
                    row = dataclasses.replace(row, question=f"{row.question} {number}?")
                table.add(row)

    return add


def test_kept_texts_are_written_to_a_private_file_that_evaluation_reads(route: Route, fill: Fill) -> None:
    fill(3, question="What is", answer="1", expert_answer="2", outcome="expert_better")
    fill(2, question="What was", answer="1", expert_answer="1", at=JANUARY_31 - 86_400)
    fill(4)
    assert route("export", "--out", "mine.jsonl") == ("", "Wrote 5 verdicts to mine.jsonl.\n")
    assert Path("mine.jsonl").stat().st_mode & 0o077 == 0
    assert read_dataset(Path("mine.jsonl")).texts[0] == "What is 0?"
    out, err = route("export", "--since", "2026-01-31")
    assert [json.loads(line)["query"] for line in out.splitlines()] == [
        "What is 0?",
        "What is 1?",
        "What is 2?",
    ]
    assert err == "Wrote 3 verdicts.\n"
    assert json.loads(route("export", "-o", "more.jsonl", "--json")[0]) == {"rows": 5, "out": "more.jsonl"}


def test_where_no_text_was_kept_it_is_said_how_to_keep_it(route: Route, fill: Fill) -> None:
    assert "tenants.NAME.keep_text" in route("export", "--out", "mine.jsonl")[1]
    fill(2)
    assert "tenants.NAME.keep_text" in route("export")[1]
    assert not Path("mine.jsonl").exists()


def test_a_file_that_exists_is_kept_and_mistakes_are_sentences(route: Route, fill: Fill) -> None:
    fill(1, question="What is")
    Path("mine.jsonl").write_text("precious")
    assert "mine.jsonl exists already" in route("export", "--out", "mine.jsonl", code=2)[1]
    assert Path("mine.jsonl").read_text() == "precious"
    assert "cannot be written" in route("export", "--out", "none/mine.jsonl", code=2)[1]
    assert "name one with --out" in route("export", "--json", code=2)[1]
    assert "--since must be a day" in route("export", "--since", "yesterday", code=2)[1]


def test_a_tenant_is_forgotten_only_when_that_is_said(route: Route, fill: Fill) -> None:
    fill(2, question="What is")
    fill(3, tenant="zoo", question="What is")
    assert "deletes 3 verdicts of zoo for good; say so with --yes" in route("forget", "zoo", code=2)[1]
    assert route("forget", "zoo", "--yes") == ("Deleted 3 verdicts of zoo.\n", "")
    assert len(route("export")[0].splitlines()) == 2
    assert json.loads(route("forget", "acme", "-y", "--json")[0]) == {"tenant": "acme", "deleted": 2}
    assert "no verdicts of acme" in route("forget", "acme")[1]


class Typed(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_it_is_asked_first(route: Route, fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(3)
    monkeypatch.setattr("sys.stdin", Typed("n\n"))
    assert "Delete 3 verdicts of acme for good?" in route("forget", "acme", code=INTERRUPTED)[1]
    monkeypatch.setattr("sys.stdin", Typed("y\n"))
    assert "Deleted 3 verdicts of acme." in route("forget", "acme")[0]


def test_without_any_state_there_is_nothing_to_forget(route: Route, tmp_path: Path) -> None:
    assert "no verdicts of acme" in route("forget", "acme")[1]
    assert not (tmp_path / "home" / "state").exists()


def test_the_report_shows_where_tiers_are_worst_with_bounds(route: Route, fill: Fill, tmp_path: Path) -> None:
    fill(20, region="law")
    fill(9, region="maths", outcome="expert_better", cost=5)
    fill(1, region="maths", outcome="low_better")
    fill(2, region="maths", outcome="unclear")
    fill(30, region="code", outcome="expert_better")
    fill(5, region="code", outcome="expert_better", tenant="zoo")
    fill(5, region="code", outcome="expert_better", at=JANUARY_31 + 86_400)
    for number in range(9):
        fill(1, region=f"other/{number}")
    with closing(Database(tmp_path / "home" / "state")) as database:
        RouteTable(database).add({("acme", "2026-01-31", "small"): RouteTally(requests=1, weighed=1)})
        LearningTable(database).change(Change("small", "code", True, JANUARY_31, "It was bad."), "m")
    period = ("report", "--day", "2026-01-31", "--tenant", "acme")
    rows = json.loads(route(*period, "--json")[0])["regions"]
    assert [row["region"] for row in rows[:2]] == ["code", "maths"]
    assert rows[-1]["region"].startswith("other/")
    code, maths = rows[:2]
    assert (code["promoted"], code["verdicts"], code["needed"]) == (True, 30, None)
    assert (maths["promoted"], maths["verdicts"], maths["as_good"], maths["unclear"]) == (False, 10, 1, 2)
    assert maths["low"] < maths["share"] == 0.1 < maths["high"]
    assert maths["needed"] == 16
    assert maths["cost_usd"] == "0.000000000045"
    out, _ = route(*period)
    lines = [line.split() for line in out.splitlines()]
    start = next(number for number, line in enumerate(lines) if "REGION" in line)
    assert lines[start + 1][:6] == ["small", "code", "skipped", "30", "0", "0.0%"]
    assert lines[start + 2][:6] == ["small", "maths", "asked", "10", "2", "10.0%"]
    assert "(2 better ones are in --json.)" in out
