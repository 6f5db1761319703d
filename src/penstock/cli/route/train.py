"""penstock route train: a predictor from measured answers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.errors import ConfigError

EPILOG = (
    "[dim]Examples:[/dim]\n\n"
    "penstock route train --data outcomes.csv.gz --out mine.npz\n\n"
    "penstock route train --data folder/ --out mine.npz --text encoder\n\n"
    "penstock route export --out log.jsonl && penstock route train --data log.jsonl --out mine.npz"
)
ENDINGS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz")


def train(
    data: Annotated[
        list[Path], typer.Option("--data", help="A file of outcomes, or a folder of such files; repeatable.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("predictor.npz"),
    text: Annotated[str, typer.Option("--text", help="The text model: light or encoder.")] = "light",
    seed: Annotated[int, typer.Option("--seed", help="Of what is drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Train a predictor for `model: auto` from questions whose answers were measured.

    A file is a CSV with a column for the question and one called `NAME|ok` for each model, or JSONL (see
    docs/routing-evaluation.md). Every file becomes a family: a kind of query with what was learned from it.
    Put the result into the configuration as `routing.predictor`; judge it with `penstock route eval`.
    """
    from penstock.aio.choose import Ladder
    from penstock.aio.evaluate.dataset import read_dataset
    from penstock.aio.learn import train_predictor
    from penstock.aio.learned_file import load, save
    from penstock.aio.text_recipe import RECIPES

    if text not in RECIPES:
        raise ConfigError(f"--text must be one of {', '.join(RECIPES)}, got {text!r}.")
    began = time.monotonic()
    with Console(stderr=True).status("reading") as status:
        tables = []
        for path in _files(data):
            status.update(f"{path.name}: reading")
            tables.append(read_dataset(path))
        save(train_predictor(tables, recipe=RECIPES[text](), seed=seed, step=status.update), out)
    predictor = load(out)
    sample = predictor.sample
    costs = [float(number + 1) for number in range(len(sample.references))]
    warnings = [warning for table in tables for warning in table.warnings]
    found = {
        "file": str(out),
        "version": predictor.version,
        "text": text,
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
        "bytes": out.stat().st_size,
        "questions": len(predictor.trained_keys),
        "families": [
            {"name": family.name, "models": list(family.trained.models)} for family in predictor.families
        ],
        "ladder": list(sample.references),
        "held_out_rows": len(sample.ok),
        "held_out_quality": [round(float(mean), 4) for mean in sample.ok.mean(axis=0)],
        "predicted_quality": [round(float(mean), 4) for mean in sample.quality.mean(axis=0)],
        "reachable": round(Ladder(sample.quality, sample.ok, costs).best(range(len(costs))), 4),
        "warnings": warnings,
    }
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{out}: {predictor.version}, {found['questions']:,} questions, {out.stat().st_size / 1e6:.1f} MB")
    for family in predictor.families:
        print(f"  {family.name}: {', '.join(family.trained.models)}")
    print(f"Ladder, held out ({len(sample.ok):,} rows): measured quality, and what was predicted of it")
    for name, ok, quality in zip(sample.references, sample.ok.T, sample.quality.T, strict=True):
        print(f"  {name:<24} {ok.mean():.3f}  {quality.mean():.3f}")
    for warning in warnings:
        print(f"Note: {warning}")
    print(f"Use it with 'routing: {{predictor: {out}}}'; 'penstock route eval' says what it is worth.")


def _files(given: list[Path]) -> list[Path]:
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            found = sorted(each for each in path.iterdir() if each.name.endswith(ENDINGS))
            if not found:
                raise ConfigError(f"{path} holds no {', '.join(ENDINGS)} file; name one that does.")
            files += found
        elif path.is_file():
            files.append(path)
        else:
            raise ConfigError(f"--data names {path}, which is not a file or a folder; correct the path.")
    return files
