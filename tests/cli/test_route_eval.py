"""`penstock route eval`: a file of outcomes in, tables or one JSON object out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.aio import packed
from penstock.cli.app import run

Run = Callable[..., tuple[str, str]]
QUICK = ("--folds", "3", "--repeats", "1")


@pytest.fixture
def judged(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_eval(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert run(["route", "eval", *arguments]) == code
        output = capsys.readouterr()
        return output.out, output.err

    return run_eval


@pytest.fixture
def outcomes(tmp_path: Path) -> Path:
    """Sums of large numbers are beyond the small model; the large one errs now and then."""
    rows = ["subject,prompt,small-1b|ok,large-9b|ok"]
    for row in range(60):
        hard = row % 3 == 0
        text = f"Integrate x^{row} over the sphere" if hard else f"What is the colour of leaf number {row}?"
        rows.append(f"{'maths' if row % 2 else 'nature'},{text},{int(not hard)},{int(row % 20 != 1)}")
    path = tmp_path / "outcomes.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_every_router_stands_beside_the_baselines_in_the_tables(
    judged: Run, outcomes: Path, tmp_path: Path
) -> None:
    plot = tmp_path / "reliability.svg"
    output, errors = judged("--data", str(outcomes), *QUICK, "--plot", str(plot))
    for said in ("light", "length", "base_rate", "oracle", "random", "APGR", "CPT80", "Decision time", "ECE"):
        assert said in output
    assert "Subjects seen" in output
    assert "Subjects never seen" in output
    assert "The shipped model was not trained on small-1b, large-9b." in output
    assert not errors
    assert plot.read_text().startswith("<svg ")


def test_one_json_object_has_the_figures_at_its_top(judged: Run, outcomes: Path) -> None:
    output, _ = judged("--data", str(outcomes), *QUICK, "--json", "--price", "large-9b=30")
    found = json.loads(output)
    assert found["file"] == "outcomes"
    assert found["recipe"] == "light"
    assert found["apgr_seen"] > 0.6
    assert found["seen"]["oracle"]["apgr"]["mean"] >= found["apgr_seen"]
    assert found["saving_net"] is not None
    assert found["apgr_shipped"] is None
    assert found["decision_ms"]["p50"] > 0
    assert found["tiers"][0] == {"model": "small-1b", "cost": 1.0, "quality": pytest.approx(2 / 3, abs=1e-4)}
    assert found["tiers"][1]["cost"] == 30.0  # as given, instead of its 9 billion parameters


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "nowhere.csv"], "There is no file nowhere.csv"),
        (
            ["--data", "{data}", "--recipe", "magic"],
            "There is no recipe 'magic'; choose from light, encoder.",
        ),
        (["--data", "{data}", "--folds", "40"], "--folds must be from 2 to 20, got 40."),
        (["--data", "{data}", "--target", "1.5"], "--target must be above 0 and at most 1, got 1.5."),
        (["--data", "{data}", "--also", "{data}"], "--also needs a folder of files with outcomes"),
        (["--data", "{data}", "--price", "huge=1"], "--price names 'huge', which no file has"),
        (["--data", "{data}", "--price", "small-1b"], "--price must be MODEL=COST"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    judged: Run, outcomes: Path, arguments: list[str], said: str
) -> None:
    _, errors = judged(*(argument.format(data=outcomes) for argument in arguments), code=2)
    assert said in errors


@pytest.mark.parametrize("command", [("route", "eval"), ("route", "train"), ("cache", "eval")])
def test_a_file_that_unpacks_without_end_is_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(packed.read_unpacked, "__defaults__", (1 << 20,))
    Path("bomb.csv.gz").write_bytes(gzip.compress(b"a,b,label,kind\n" + bytes(2 << 20)))
    assert run([*command, "--data", "bomb.csv.gz"]) == 2
    assert "bomb.csv.gz holds more than 1 MB" in " ".join(capsys.readouterr().err.split())
