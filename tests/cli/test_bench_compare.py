"""`penstock bench compare`: two files, or two servers in turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.bench.result import read_result
from penstock.cli.app import run as penstock
from penstock.gateway.console.reports import Reports
from tests.bench.results import content, run
from tests.server import Server


def written(folder: Path, name: str, *walls: float, **changes: Any) -> str:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content([run(wall=wall, requests=4, **changes) for wall in walls])))
    return str(path)


def test_the_command_has_help_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert penstock(["bench", "compare", "--help"]) == 0
    assert "penstock bench compare before.json after.json" in capsys.readouterr().out.split("Examples")[1]


def test_two_files_are_compared_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = written(tmp_path, "old", 1.0, 1.1), written(tmp_path, "new", 0.5, 0.6)
    result, page = tmp_path / "result.json", tmp_path / "page.html"
    assert penstock(["bench", "compare", old, new, "--json", str(result), "--html", str(page)]) == 0
    assert "W2 online: A is old, B is new" in capsys.readouterr().out
    found = read_result(result)
    assert found["subject"] == {"names": ["old", "new"], "interleaved": False}
    assert len(found["sides"]) == 2
    assert "<svg" in page.read_text()


def test_a_page_can_be_left_for_the_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path / "state"))
    old, new = written(tmp_path, "old", 1.0), written(tmp_path, "new", 2.0)
    assert penstock(["bench", "compare", old, new, "--html", "console"]) == 0
    [report] = Reports(tmp_path / "state" / "reports").list()
    assert report.name.startswith("compare-")
    assert report.title.startswith("Two results compared")
    # A folder that cannot be made is said before anything is measured.
    (tmp_path / "file").touch()
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path / "file"))
    assert penstock(["bench", "compare", old, new, "--html", "console"]) == 2


def test_a_full_disk_takes_neither_the_tables_nor_the_other_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, page = written(tmp_path, "old", 1.0), written(tmp_path, "new", 2.0), tmp_path / "page.html"
    assert penstock(["bench", "compare", old, new, "--json", "/dev/full", "--html", str(page)]) == 2
    shown = capsys.readouterr()
    assert "A is old, B is new" in shown.out
    assert "--json names /dev/full, which could not be written: No space left on device" in shown.err
    assert "<svg" in page.read_text()


def test_the_status_says_whether_b_is_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = written(tmp_path, "old", 1.00, 1.01), written(tmp_path, "new", 1.20, 1.21)
    assert penstock(["bench", "compare", old, new, "--fail-if-worse", "5"]) == 1
    assert "output tok/s of new is worse than old by 16.6% (allowed: 5%)" in capsys.readouterr().err
    assert penstock(["bench", "compare", old, new, "--fail-if-worse", "30"]) == 0
    assert penstock(["bench", "compare", new, old, "--fail-if-worse", "5"]) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Give two results to compare, or --url twice; got 0 files"),
        (["{old}"], "got 1 files"),
        (["{old}", "{old}", "--requests", "3"], "--requests is for measuring with --url"),
        (["{old}", "{old}", "-r", "3"], "--repeat is for measuring with --url"),
        (["{old}", "{old}", "--slo", "e2e=1s"], "--slo is for measuring with --url"),
        (["{old}", "{old}", "--url", "http://127.0.0.1:9"], "not both"),
        (["--url", "http://127.0.0.1:9"], "--url must be given twice"),
        (["--url", "nowhere", "--url", "nowhere"], "--url must be an address"),
        (["{old}", "{old}", "--name", "x"], "--name must be given twice"),
        (["{old}", "{other}"], "no run in common"),
        (["{old}", "{first}"], "has version 1 of the result's schema"),
        (
            ["{old}", "{old}", "--html", "no/where.html"],
            "--html names no/where.html, which cannot be written",
        ),
    ],
)
def test_what_cannot_be_compared_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    first = tmp_path / "first.json"
    first.write_text(json.dumps({"kind": "online", "measured_at": "2026-01-01"}))
    files = {
        "old": written(tmp_path, "old", 1.0),
        "other": written(tmp_path, "other", 1.0, workload="W3"),
        "first": str(first),
    }
    assert penstock(["bench", "compare", *(argument.format(**files) for argument in arguments)]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_two_servers_that_are_dead_are_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    urls = ["--url", "http://127.0.0.1:9", "--url", "http://127.0.0.1:9"]
    options = ["--model", "m", "--requests", "2", "--input-len", "4", "--output-len", "2", "--no-ceilings"]
    assert penstock(["bench", "compare", *urls, *options, "-r", "2", "--name", "old", "--name", "new"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    for side in ("A, old", "B, new"):
        assert f"{side}, custom online, first error: No connection to http://127.0.0.1:9" in shown


def test_two_servers_are_measured_in_turns(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "result.json"
    lengths = ["--requests", "2", "--input-len", "40", "--output-len", "2"]
    options = [*lengths, "-r", "2", "--no-ceilings", "--salt", "x"]
    urls = ["--url", server.url, "--url", f"{server.url}/v1"]
    assert penstock(["bench", "compare", *urls, *options, "--json", str(result)]) == 0
    found = read_result(result)
    assert found["subject"]["interleaved"] is True
    assert [[one["repeat"] for one in side["runs"]] for side in found["sides"]] == [[0, 1], [0, 1]]
    assert all(one["completed"] == 2 for side in found["sides"] for one in side["runs"])
    # Behind both is one server: no side may have found the other's prompts in its cache.
    assert all(one["cached_tokens"] == 0 for side in found["sides"] for one in side["runs"])
    assert "2 and 2 repeats" in " ".join(capsys.readouterr().out.split())
