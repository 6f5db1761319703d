"""The catalogue as docs/metrics.md has it: `python -m penstock.observe.document docs/metrics.md`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from penstock.observe.catalogue import PARTS, specs
from penstock.observe.instruments import Spec

MARK: Final = "replaces everything from here on. -->\n\n"


def document(written: str) -> str:
    """The page: what people wrote above the mark, and the catalogue."""
    prose, mark, _ = written.partition(MARK)
    return prose + mark + tables()


def tables() -> str:
    return "\n".join([*(_section(part) for part in PARTS), _buckets()])


def _section(part: type) -> str:
    rows = [f"## {part.__name__}", "", part.__doc__ or "", ""]
    rows += ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    rows += [_row(spec) for spec in vars(part).values() if isinstance(spec, Spec)]
    return "\n".join(rows) + "\n"


def _row(spec: Spec) -> str:
    labels = ", ".join(f"`{label}`" for label in spec.labels)
    also = f" Also `{_exported(spec, spec.also)}`." if spec.also else ""
    return f"| `{_exported(spec, spec.name)}` | {spec.kind} | {labels} | {spec.help}{also} |"


def _buckets() -> str:
    """The bounds of histograms, each set of them once."""
    named: dict[tuple[tuple[float, ...], str], list[str]] = {}
    for spec in specs().values():
        if spec.kind == "histogram":
            named.setdefault((spec.bounds, spec.objective), []).append(spec.name)
    rows = ["## Buckets", "", "| bounds | of |", "|---|---|"]
    for (bounds, objective), names in named.items():
        shown = ", ".join(f"{bound:g}" for bound in bounds)
        promised = f"; every `{objective}` that is promised" if objective else ""
        rows.append(f"| {shown}{promised} | {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join(rows) + "\n"


def _exported(spec: Spec, name: str) -> str:
    return name + "_total" if spec.kind == "counter" else name


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(document(path.read_text(encoding="utf-8")), encoding="utf-8")
