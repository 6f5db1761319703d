"""Kernels of a step follow each other closely: one may begin while the one before it ends.

A kernel launched with `overlapped()` waits for the one before (`await_previous`, or `tl.extra.cuda.gdc_wait`)
ahead of its first look at anything that a kernel of the step writes. It saves the time between two kernels.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl


def overlapped() -> dict[str, Any]:
    """Arguments of such a launch; the kernel is told by a constant of the name PDL."""
    able = not triton.knobs.runtime.interpret and _able(torch.cuda.current_device())
    return {"PDL": able, "launch_pdl": able}


@cache
def _able(device: int) -> bool:
    """The current device: processors are from Hopper on. The interpreter runs one kernel after the other."""
    target = triton.runtime.driver.active.get_current_target()
    return target.backend == "cuda" and int(target.arch) >= 90


@triton.jit
def await_previous(PDL: tl.constexpr):
    """Let the next kernel begin, and wait for the one before."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
