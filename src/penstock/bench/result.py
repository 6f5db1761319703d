"""The JSON file of a measurement: its version, what it must have, and how it is read again.

docs/benchmarking.md says what each field means. A change that a reader would stumble over
(a field gone, renamed, in another unit) makes a new SCHEMA; a field more does not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from penstock.bench.ceilings import Ceilings
from penstock.bench.statistics import Run
from penstock.errors import ConfigError

SCHEMA = 2


class _Machine(Struct):
    processor: str
    cores: int
    memory_gib: float


class _Common(Struct):
    """What every kind has, beside `schema` and `kind`."""

    measured_at: str
    command: str
    machine: _Machine
    versions: dict[str, str]
    subject: dict[str, Any]
    ceilings: Ceilings | None
    # Of some kinds alone; a kind that needs them says so in KINDS.
    price_per_hour: float | None = None
    saturation: dict[str, int | None] = {}


# What a file of each kind has beside the common fields.
KINDS = {
    "offline": ("runs", "medians", "price_per_hour"),
    "serve": ("runs", "medians", "price_per_hour"),
    "sweep": ("runs", "medians", "price_per_hour", "saturation"),
    "compare": ("sides", "comparisons"),
    "embed": ("runs", "batched_over_one_by_one"),
    "quality": ("runs", "quality", "limit", "within"),
}
WITH_RUNS = ("offline", "serve", "sweep")  # whose runs are `Run`s


def read_result(path: Path | str) -> dict[str, Any]:
    """A file that `--json` wrote, checked; anything else is a ConfigError with a sentence."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ConfigError(
            f"{path} is not JSON; give a file that `penstock bench ... --json FILE` wrote."
        ) from None
    check(content, str(path))
    return content  # type: ignore[no-any-return]


def check(content: Any, name: str) -> None:
    """Raise ConfigError unless this is a result of this version."""
    if not isinstance(content, dict) or "kind" not in content or "measured_at" not in content:
        raise ConfigError(
            f"{name} is not a result of `penstock bench`; give a file that its --json option wrote."
        )
    schema = content.get("schema", 1)  # the first version had no number
    if schema != SCHEMA:
        raise ConfigError(
            f"{name} has version {schema!r} of the result's schema, this Penstock reads version {SCHEMA}; "
            f"measure again, or use the Penstock that wrote it{_writer(content)}."
        )
    kind = content["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(f"{name} has the kind {kind!r}; a result is one of {', '.join(KINDS)}.")
    for field in KINDS[kind]:
        if field not in content:
            raise ConfigError(f"{name} is damaged: it has no {field!r}; measure again.")
    try:
        msgspec.convert(content, _Common)
        runs_of(content)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name} is damaged: {error}; measure again.") from None
    for side in content["sides"] if kind == "compare" else ():
        check(side, f"A side of {name}")


def runs_of(content: dict[str, Any]) -> list[Run]:
    """The runs of a result, typed; none for a kind that has no such runs."""
    if content["kind"] not in WITH_RUNS:
        return []
    return msgspec.convert(content["runs"], list[Run])


def _writer(content: dict[str, Any]) -> str:
    versions = content.get("versions")
    version = versions.get("penstock") if isinstance(versions, dict) else None
    return f" ({version})" if isinstance(version, str) else ""
