"""How near a run came to the ceilings of its machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.bench.ceilings import Ceilings
from penstock.bench.statistics import Run
from penstock.bench.tables import Item, Note, Table, label


def in_words(ceilings: Ceilings) -> str:
    parts = [f"memory read {ceilings.memory_read_gb_per_second:.1f} GB/s"]
    if ceilings.cache_read_gb_per_second:
        parts[0] += f" ({ceilings.cache_read_gb_per_second:.0f} from the cache)"
    parts.append(f"fp32 matmul {ceilings.fp32_gflop_per_second:,.0f} GFLOP/s")
    if ceilings.bf16_gflop_per_second:
        parts.append(f"bf16 {ceilings.bf16_gflop_per_second:,.0f} GFLOP/s")
    if ceilings.int8_gop_per_second:
        parts.append(f"int8 {ceilings.int8_gop_per_second:,.0f} GOP/s")
    threads = f"{ceilings.threads} thread{'' if ceilings.threads == 1 else 's'}"
    return f"Ceilings of {ceilings.device}, {threads}: {', '.join(parts)}."


def ceiling_items(content: dict[str, Any], runs: Sequence[Run]) -> Iterator[Item]:
    ceilings = Ceilings(**content["ceilings"])
    yield Note(in_words(ceilings))
    rows = [row for run in runs if (row := _reached(content["subject"], ceilings, run))]
    if rows:
        yield Table(
            title="Share of the ceilings",
            head=("run", "weights read GB/s", "of memory", "matmul GFLOP/s", "of matmul"),
            rows=rows,
            note="Weights read: their bytes x steps / wall. Matmul: 2 x weights x computed tokens / wall, "
            f"against the ceiling of {content['subject'].get('precision')}. The output matrix is counted for "
            "every token, though prompts need it for their last alone.",
        )


def _reached(subject: dict[str, Any], ceilings: Ceilings, run: Run) -> Sequence[str] | None:
    """How near the engine came: every step reads each matrix once, every token multiplies by each.

    `weight_bytes` leaves the embedding out: of that table a step reads one row for each token.
    """
    weight_bytes, precision = subject.get("weight_bytes"), subject.get("precision", "")
    if not weight_bytes or not run.engine:
        return None
    read = weight_bytes * run.engine["steps"] / run.wall_seconds / 1e9
    weights, limit = subject.get("weight_count"), ceilings.matmul(precision)
    tokens = run.input_tokens - run.cached_tokens + run.output_tokens
    multiplied = 2 * weights * tokens / run.wall_seconds / 1e9 if weights else None
    return (
        label(run),
        f"{read:.1f}",
        f"{read / ceilings.memory_read_gb_per_second:.0%}",
        "-" if multiplied is None else f"{multiplied:,.0f}",
        "-" if multiplied is None or not limit else f"{multiplied / limit:.0%}",
    )
