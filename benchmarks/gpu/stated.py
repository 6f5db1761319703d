"""What the figures are held against."""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = "vLLM 0.26.0, same workload, one H200"


@dataclass(frozen=True, slots=True)
class Stated:
    peer: float | None
    bar: float | None
    moonshot: float | None


# By model and precision of the computation; in each workload's unit.
FIGURES: dict[tuple[str, str], dict[str, Stated]] = {
    ("llama8b", "bfloat16"): {
        "G1": Stated(9547, 10800, 11800),
        "G2": Stated(4.97, 4.4, 4.0),
        "G3": Stated(40039, 42000, 46000),
        "G4": Stated(5566, 6000, 8500),
        "G5": Stated(3412, 3650, 3800),
    },
    ("llama8b", "fp8"): {
        "G1": Stated(11910, 14000, 17000),
        "G2": Stated(3.51, 3.1, 2.5),
        "G3": Stated(60233, 64000, 72000),
        "G5": Stated(4374, None, None),
    },
    ("qwen0.6b", "bfloat16"): {
        "G1": Stated(21190, 26000, 30000),
        "G2": Stated(2.51, 1.5, 1.1),
        "G5": Stated(9265, None, None),
    },
}
# Seconds from the start of the process to the first token, llama8b: kernels compiled before, and not.
START = {"warm": Stated(76, 15, 8), "cold": Stated(76, 30, 15)}
# Times as fast on G1 as the same engine without continuous batching, by the baseline's name. The CPU is held
# against static batches of 16 too; those of other sizes are shown and not judged.
BASELINES = {"static batches of 16": 3.0, "one at a time": 10.0}


def verdict(stated: Stated | None, value: float, *, lower_is_better: bool) -> str:
    """Beside its bar: moonshot, met, not met, or nothing where there is none."""
    if stated is None or stated.bar is None:
        return ""
    sign = -1 if lower_is_better else 1
    if stated.moonshot is not None and sign * value >= sign * stated.moonshot:
        return "moonshot"
    return "met" if sign * value >= sign * stated.bar else "not met"
