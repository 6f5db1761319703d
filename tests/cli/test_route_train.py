"""`penstock route train`: a predictor from a file of outcomes, or the reason why there is none."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.aio.predictor import load_predictor
from penstock.aio.query import query_of_text
from penstock.cli.app import run

COLUMNS = ("prompt", "subject", "small|ok", "large|ok")


def write(path: Path, rows: list[tuple[Any, ...]], columns: tuple[str, ...] = COLUMNS) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def outcomes(count: int = 160) -> list[tuple[Any, ...]]:
    """The small model adds, and does not prove."""
    rows: list[tuple[Any, ...]] = []
    for number in range(count):
        hard = number % 2
        text = f"Prove theorem {number} of topology." if hard else f"What is {number} plus {number + 3}?"
        rows.append(
            (text, "proofs" if hard else "sums", int(not hard or number % 16 == 1), int(number % 9 != 4))
        )
    return rows


def train(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(["route", "train", *arguments])
    return status, out.getvalue(), err.getvalue()


def test_a_log_becomes_a_predictor_that_knows_what_is_hard(tmp_path: Path) -> None:
    data = write(tmp_path / "log.csv", outcomes())
    status, out, _ = train("--data", str(data), "--out", str(tmp_path / "mine.npz"), "--json")
    assert status == 0
    said = json.loads(out)
    assert said["ladder"] == ["small", "large"]
    assert said["questions"] == 160
    predictor = load_predictor(str(tmp_path / "mine.npz"))
    sums, proofs = (
        predictor.rate(query_of_text(text), ("small", "large")).quality[0]
        for text in ("What is 900 plus 77?", "Prove theorem 900 of topology.")
    )
    assert sums > 0.7
    assert proofs < 0.4


def test_the_same_data_and_seed_make_the_same_file(tmp_path: Path) -> None:
    data = write(tmp_path / "log.csv", outcomes(130))
    versions = []
    for name in ("a.npz", "b.npz"):
        status, out, _ = train("--data", str(data), "--out", str(tmp_path / name), "--json")
        assert status == 0
        versions.append(json.loads(out)["version"])
    assert versions[0] == versions[1]


@pytest.mark.parametrize(
    ("rows", "columns", "complaint"),
    [
        ([("What?", "a", 1, 1)] * 3, COLUMNS, "outcomes of both kinds"),
        ([(f"Question {n}?", "a", 1, 1) for n in range(100)], COLUMNS, "outcomes of both kinds"),
        (outcomes(), ("prompt", "subject", "small", "large"), "log.csv"),
        (outcomes(), ("id", "subject", "small|ok", "large|ok"), "log.csv"),
        ([("What?", "a", "maybe", 1)] * 80, COLUMNS, "maybe"),
        ([("What?", "a", "nan", 1)] * 80, COLUMNS, "outcomes of both kinds"),
    ],
    ids=["few", "one class", "no outcomes", "no question", "no number", "not a number"],
)
def test_data_that_nothing_can_be_learned_from_is_refused_with_the_reason(
    tmp_path: Path, rows: list[tuple[Any, ...]], columns: tuple[str, ...], complaint: str
) -> None:
    data = write(tmp_path / "log.csv", rows, columns)
    status, _, err = train("--data", str(data), "--out", str(tmp_path / "mine.npz"))
    assert status == 2
    assert complaint in err
    assert not (tmp_path / "mine.npz").exists()


def test_wrong_names_are_said(tmp_path: Path) -> None:
    assert "is not a file or a folder" in train("--data", str(tmp_path / "none"))[2]
    assert "holds no" in train("--data", str(tmp_path))[2]
    data = write(tmp_path / "log.csv", outcomes())
    assert "must be one of light, encoder" in train("--data", str(data), "--text", "gpt")[2]
