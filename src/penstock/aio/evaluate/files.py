"""Reading files of outcomes: CSV by what its columns are called, JSONL one object a line.

A question is a column `prompt`, `question`, `query` or `text` (with `options`, a JSON list, where there are
choices); its subject is `category`, `subject`, `group`, `domain` or `task`. An outcome of the model NAME is
`NAME|ok` or `NAME|score`, or `NAME` itself where `NAME_response` holds its answer or all values are True or
False. `NAME|cost` is what its answers cost.
"""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from penstock.aio.packed import read_unpacked
from penstock.errors import ConfigError

QUESTIONS = ("prompt", "question", "query", "text")
GROUPS = ("category", "subject", "group", "domain", "task", "region")
OUTCOMES = ("|ok", "|score")
_TRUTHS = {"true": 1.0, "false": 0.0, "": float("nan"), "none": float("nan"), "nan": float("nan")}
_FIELD = 1 << 24  # characters: the longest field that is read


@dataclass(frozen=True, slots=True)
class Raw:
    """What a file says, before names are made canonical."""

    name: str
    texts: list[str]
    stems: list[str]  # the question without its options: what tells two questions apart
    groups: list[str] | None
    outcomes: dict[str, list[float]]  # by model, nan where unknown
    costs: dict[str, float] = field(default_factory=dict)  # the mean, for the models that say
    answers: dict[str, list[str]] = field(default_factory=dict)


class Line(msgspec.Struct):
    """One line of a JSONL log: a question and how each tier did."""

    query: str
    outcomes: dict[str, float | bool | None]
    cost: dict[str, float] = {}
    group: str | None = None
    answers: dict[str, str] = {}


def read_raw(path: Path) -> Raw:
    """Read either kind of file, or say in a sentence what is wrong with it."""
    try:
        text = read_unpacked(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}; give --data a CSV or JSONL file of outcomes.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; name a file in it.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not text; a CSV or JSONL file in UTF-8 is needed.") from None
    if not text.strip():
        raise ConfigError(f"{path} is empty; a header and at least one row are needed.")
    name = path.name.removesuffix(".gz").rsplit(".", 1)[0]
    return _of_lines(name, path, text) if text.lstrip()[0] == "{" else _of_table(name, path, text)


def _of_lines(name: str, path: Path, text: str) -> Raw:
    lines: list[Line] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            lines.append(msgspec.json.decode(line, type=Line, strict=False))
        except msgspec.MsgspecError as error:
            said = str(error).rstrip(".")
            raise ConfigError(
                f"{path}, line {number}: {said}; a line is "
                '{"query": "...", "outcomes": {"small": 0, "expert": 1}, "cost": {"small": 1, "expert": 20}}.'
            ) from None
    models = list(dict.fromkeys(model for line in lines for model in line.outcomes))
    outcomes = {model: [_number(path, line.outcomes.get(model)) for line in lines] for model in models}
    spent = {model: [line.cost[model] for line in lines if model in line.cost] for model in models}
    return _checked(
        path,
        Raw(
            name=name,
            texts=[line.query for line in lines],
            stems=[line.query for line in lines],
            groups=[line.group or "" for line in lines] if any(line.group for line in lines) else None,
            outcomes=outcomes,
            costs={model: sum(costs) / len(costs) for model, costs in spent.items() if costs},
            answers=_answered({model: [line.answers.get(model, "") for line in lines] for model in models}),
        ),
    )


def _of_table(name: str, path: Path, text: str) -> Raw:
    csv.field_size_limit(_FIELD)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        rows: list[dict[str, str]] = [
            {key: value or "" for key, value in row.items() if isinstance(key, str)} for row in reader
        ]
        columns = list(reader.fieldnames or ())
    except csv.Error as error:
        raise ConfigError(f"{path} is not a CSV file: {error}.") from None
    question = next((column for column in QUESTIONS if column in columns), None)
    if question is None:
        raise ConfigError(
            f"{path} has no column {', '.join(QUESTIONS[:-1])} or {QUESTIONS[-1]}; "
            f"its columns are {_listed(columns)}."
        )
    group = next((column for column in GROUPS if column in columns), None)
    outcomes = _outcomes(path, columns, rows)
    has_options = "options" in columns
    return _checked(
        path,
        Raw(
            name=name,
            texts=[_asked(row[question], row["options"] if has_options else "") for row in rows],
            stems=[row[question] for row in rows],
            groups=[row[group] for row in rows] if group is not None else None,
            outcomes={model: values for model, (_, values) in outcomes.items()},
            costs=_costs(path, list(outcomes), columns, rows),
            answers=_answered(
                {
                    model: [row[f"{column}_response"] for row in rows]
                    for model, (column, _) in outcomes.items()
                    if f"{column}_response" in columns
                }
            ),
        ),
    )


def _outcomes(
    path: Path, columns: list[str], rows: list[dict[str, str]]
) -> dict[str, tuple[str, list[float]]]:
    """By model: its column and its values."""
    taken = {*QUESTIONS, *GROUPS}
    found: dict[str, tuple[str, list[float]]] = {}
    for column in columns:
        ending = next((ending for ending in OUTCOMES if column.endswith(ending)), "")
        bare = not ending and column not in taken and "|" not in column
        if ending or (bare and (f"{column}_response" in columns or _truths(row[column] for row in rows))):
            model = column.removesuffix(ending)
            found[model] = (model, [_number(path, row[column], column, at) for at, row in enumerate(rows, 2)])
    return found


def _truths(values: Iterable[str]) -> bool:
    seen = {value.strip().lower() for value in values}
    return bool(seen & {"true", "false"}) and seen <= {"true", "false", ""}


def _costs(path: Path, models: list[str], columns: list[str], rows: list[dict[str, str]]) -> dict[str, float]:
    means = {}
    for model in models:
        if f"{model}|cost" in columns:
            column = f"{model}|cost"
            costs = [
                _number(path, row[column], column, at, most=float("inf")) for at, row in enumerate(rows, 2)
            ]
            known = [cost for cost in costs if cost == cost]
            if known:
                means[model] = sum(known) / len(known)
    return means


def _asked(question: str, options: str) -> str:
    """The question as a user would send it: with its choices, lettered."""
    if not options:
        return question
    try:
        choices = json.loads(options)
    except ValueError:
        return f"{question}\n{options}"
    if not isinstance(choices, list):
        return f"{question}\n{options}"
    return "\n".join(
        [question, *(f"{chr(ord('A') + at)}. {choice}" for at, choice in enumerate(choices[:26]))]
    )


def _number(path: Path, value: Any, column: str = "outcomes", line: int = 0, most: float = 1.0) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, bool | int | float):
        number = float(value)
    else:
        plain = value.strip().lower()
        try:
            number = _TRUTHS[plain] if plain in _TRUTHS else float(plain)
        except ValueError:
            number = -1.0
    if number == number and not 0.0 <= number <= most:
        where = f", line {line}" if line else ""
        raise ConfigError(
            f"{path}{where}: {column} must be a number from 0 to {most:g}, or True or False, "
            f"got {str(value)[:40]!r}."
        )
    return number


def _answered(answers: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {model: said for model, said in answers.items() if any(said)}


def _checked(path: Path, raw: Raw) -> Raw:
    if not raw.texts:
        raise ConfigError(f"{path} has a header and no rows; there is nothing to learn from or to judge by.")
    if len(raw.outcomes) < 2:
        found = _listed(list(raw.outcomes)) if raw.outcomes else "none"
        raise ConfigError(
            f"{path} needs outcomes of at least two models (columns NAME|ok or NAME|score), found {found}."
        )
    return raw


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
