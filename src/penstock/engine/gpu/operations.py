"""The small operations between matmuls, fused or one by one: what fusing is worth can be measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.engine.gpu import reference_rows
from penstock.engine.gpu.kernels.activation import activate
from penstock.engine.gpu.kernels.norm import add_norm
from penstock.engine.gpu.kernels.quantize import quantize_rows
from penstock.engine.gpu.kernels.rotary import rotate_and_store


@dataclass(frozen=True, slots=True)
class Operations:
    """One signature each, whichever way it is computed."""

    add_norm: Callable[..., Any]
    rotate_and_store: Callable[..., Any]
    activate: Callable[..., Any]
    quantize_rows: Callable[..., Any]


FUSED = Operations(add_norm, rotate_and_store, activate, quantize_rows)
PLAIN = Operations(
    reference_rows.add_norm,
    reference_rows.rotate_and_store,
    reference_rows.activate,
    reference_rows.quantize_rows,
)
