"""The small operations between matmuls, fused or one by one: what fusing is worth can be measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.engine.gpu import reference_rows
from penstock.engine.gpu.kernels import activation, norm, quantize, rotary


@dataclass(frozen=True, slots=True)
class Operations:
    """One signature each, whichever way it is computed."""

    add_norm: Callable[..., Any]
    rotate_and_store: Callable[..., Any]
    activate: Callable[..., Any]
    quantize_rows: Callable[..., Any]


FUSED = Operations(norm.add_norm, rotary.rotate_and_store, activation.activate, quantize.quantize_rows)
PLAIN = Operations(
    reference_rows.add_norm,
    reference_rows.rotate_and_store,
    reference_rows.activate,
    reference_rows.quantize_rows,
)
