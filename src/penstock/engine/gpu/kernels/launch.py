"""Kernels of a step follow each other closely: one may begin while the one before it ends.

A kernel launched with `overlapped()` waits for the one before (`tl.extra.cuda.gdc_wait`) ahead of its first
look at anything that a kernel of the step writes. It saves the time between two kernels.
"""

from __future__ import annotations

from typing import Any

import triton

# The interpreter runs one kernel after the other.
PDL = not triton.knobs.runtime.interpret


def overlapped() -> dict[str, Any]:
    """Arguments of such a launch; the kernel is told by a constant of the name PDL."""
    return {"PDL": PDL, "launch_pdl": PDL}
