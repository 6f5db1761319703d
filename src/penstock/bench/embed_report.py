"""The report of `bench embed`, as data and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock.bench.embedding import EmbedRun, gflops, speedups
from penstock.bench.tables import Item, Note, Table


def embed_fields(runs: Sequence[EmbedRun]) -> dict[str, Any]:
    """What the result has beside the fields that all kinds have."""
    return {"runs": [run.as_dict() for run in runs], "batched_over_one_by_one": speedups(runs)}


def embed_items(content: dict[str, Any]) -> Iterator[Item]:
    runs = msgspec.convert(content["runs"], list[EmbedRun])
    subject, ceilings = content["subject"], content["ceilings"]
    weights = subject.get("weight_count")
    columns = ["seconds", "from - to", "texts/s", "tokens/s"]
    columns += ["GFLOP/s"] if weights else []
    columns += ["of ceiling"] if weights and ceilings else []
    rows = []
    for run in runs:
        row = [
            run.mode,
            f"{run.median:.3f}",
            f"{min(run.seconds):.3f} - {max(run.seconds):.3f}",
            f"{run.texts / run.median:.0f}",
            f"{run.tokens / run.median:.0f}",
        ]
        if weights:
            reached = gflops(run, weights)
            row.append(f"{reached:.0f}")
            if ceilings:
                row.append(f"{reached / ceilings['fp32_gflop_per_second']:.0%}")
        rows.append(row)
    first = runs[0]
    yield Table(
        title=f"{first.where}: {first.texts} texts, {first.tokens} tokens, median of {len(first.seconds)}",
        head=("mode", *columns),
        rows=rows,
    )
    for where, ratio in content["batched_over_one_by_one"].items():
        yield Note(f"{where}: all at once is {ratio:.2f}x as fast as one by one.", "strong")
    if ceilings:
        yield Note(
            f"Ceiling of {ceilings['device']}, {ceilings['threads']} threads: "
            f"fp32 matmul {ceilings['fp32_gflop_per_second']:.0f} GFLOP/s."
        )
