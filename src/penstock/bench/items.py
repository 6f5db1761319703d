"""What is shown of a result, by its kind: one line here for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.bench.compare import compare_items
from penstock.bench.embed_report import embed_items
from penstock.bench.quality_report import quality_items
from penstock.bench.result import runs_of
from penstock.bench.run_tables import run_tables
from penstock.bench.tables import Item, surroundings


def _run_items(content: dict[str, Any]) -> Iterator[Item]:
    return run_tables(content, runs_of(content))


BUILDERS: dict[str, Callable[[dict[str, Any]], Iterator[Item]]] = {
    "offline": _run_items,
    "serve": _run_items,
    "sweep": _run_items,
    "compare": compare_items,
    "embed": embed_items,
    "quality": quality_items,
}


def items(content: dict[str, Any]) -> Iterator[Item]:
    yield from BUILDERS[content["kind"]](content)
    yield surroundings(content)
