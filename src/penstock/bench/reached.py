"""How near a run came to the ceilings of its machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.bench.ceilings import Ceilings
from penstock.bench.statistics import Run
from penstock.bench.tables import Item, Note, Table, label

# Bytes of a weight in memory, with its share of the scales. Files mix types, so that of int8 is about right.
BYTES_OF_WEIGHT = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "int8": 1.125}
FOUR_BITS = ("Q4_0", "Q4_1", "Q4_K")  # int8 leaves them in 4 bits
BYTES_OF_FOUR_BITS = 0.625


def bytes_of_weight(subject: dict[str, Any]) -> float | None:
    """None where the model's precision is not known."""
    precision = subject.get("precision", "")
    if precision == "int8" and subject.get("quantization", "").startswith(FOUR_BITS):
        return BYTES_OF_FOUR_BITS
    return BYTES_OF_WEIGHT.get(precision)


def ceiling_items(content: dict[str, Any], runs: Sequence[Run]) -> Iterator[Item]:
    ceilings = Ceilings(**content["ceilings"])
    parts = [f"memory read {ceilings.memory_read_gb_per_second:.1f} GB/s"]
    if ceilings.cache_read_gb_per_second:
        parts[0] += f" ({ceilings.cache_read_gb_per_second:.0f} from the cache)"
    parts.append(f"fp32 matmul {ceilings.fp32_gflop_per_second:,.0f} GFLOP/s")
    if ceilings.bf16_gflop_per_second:
        parts.append(f"bf16 {ceilings.bf16_gflop_per_second:,.0f} GFLOP/s")
    if ceilings.int8_gop_per_second:
        parts.append(f"int8 {ceilings.int8_gop_per_second:,.0f} GOP/s")
    threads = f"{ceilings.threads} thread{'' if ceilings.threads == 1 else 's'}"
    yield Note(f"Ceilings of {ceilings.device}, {threads}: {', '.join(parts)}.")
    rows = [row for run in runs if (row := _reached(content["subject"], ceilings, run))]
    if rows:
        yield Table(
            title="Share of the ceilings",
            head=("run", "weights read GB/s", "of memory", "matmul GFLOP/s", "of matmul"),
            rows=rows,
            note="Weights read: their bytes x steps / wall. Matmul: 2 x weights x computed tokens / wall, "
            f"against the ceiling of {content['subject'].get('precision')}; int8 weights are counted by "
            "their bytes, which is about right.",
        )


def _reached(subject: dict[str, Any], ceilings: Ceilings, run: Run) -> Sequence[str] | None:
    """How near the engine came: every step reads each matrix once, every token multiplies by each.

    `weight_bytes` leaves the embedding out: of that table a step reads one row for each token.
    """
    weight_bytes, precision = subject.get("weight_bytes"), subject.get("precision", "")
    if not weight_bytes or not run.engine:
        return None
    read = weight_bytes * run.engine["steps"] / run.wall_seconds / 1e9
    itemsize, limit = bytes_of_weight(subject), ceilings.matmul(precision)
    tokens = run.input_tokens - run.cached_tokens + run.output_tokens
    multiplied = 2 * weight_bytes / itemsize * tokens / run.wall_seconds / 1e9 if itemsize else None
    return (
        label(run),
        f"{read:.1f}",
        f"{read / ceilings.memory_read_gb_per_second:.0%}",
        "-" if multiplied is None else f"{multiplied:,.0f}",
        "-" if multiplied is None or not limit else f"{multiplied / limit:.0%}",
    )
