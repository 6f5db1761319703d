"""Draws and log-probabilities in C: what they are is said in `layers/sampler.py`."""

from __future__ import annotations

import ctypes
import weakref
from array import array

import torch
from torch import Tensor

from penstock.engine.layers.sampler import Logprobs, Parameters, SamplingBatch
from penstock.engine.native.library import library


class NativeDrawer:
    """Works on the threads of a pool that must outlive it, on tensors of the CPU."""

    def __init__(self, native: ctypes.CDLL, pool: int) -> None:
        self._native = native
        self._pool = pool
        self._known: tuple[Parameters, list[int]] | None = None
        self._tokens: dict[int, Tensor] = {}  # by number of rows

    def draw(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        rows, vocab = logits.shape
        tokens = self._tokens.get(rows)
        if tokens is None:
            tokens = self._tokens[rows] = torch.empty(rows, dtype=torch.int64)
        # Not tensors: between steps everything is cold, and each call of torch costs some ten microseconds.
        slots, positions = array("q", batch.slots), array("q", batch.positions)
        logits = logits.contiguous()
        if not self._native.penstock_draw(
            self._pool,
            logits.data_ptr(),
            rows,
            vocab,
            *self._parameter_pointers(batch.parameters),
            slots.buffer_info()[0],
            positions.buffer_info()[0],
            tokens.data_ptr(),
        ):
            raise MemoryError("There is no memory for drawing tokens.")
        return tokens

    def _parameter_pointers(self, parameters: Parameters) -> list[int]:
        if self._known is None or self._known[0] is not parameters:
            columns = (
                parameters.temperature,
                parameters.top_k,
                parameters.top_p,
                parameters.min_p,
                parameters.seeds,
            )
            self._known = parameters, [column.data_ptr() for column in columns]
        return self._known[1]

    def logprobs(self, logits: Tensor, tokens: Tensor, num_top: int) -> Logprobs:
        rows, vocab = logits.shape
        most = min(num_top, vocab)
        found = Logprobs(
            chosen=torch.empty(rows),
            rank=torch.empty(rows, dtype=torch.int64),
            top_ids=torch.empty((rows, most), dtype=torch.int64),
            top=torch.empty((rows, most)),
        )
        logits, tokens = logits.contiguous(), tokens.contiguous()
        results = [part.data_ptr() for part in (found.chosen, found.rank, found.top_ids, found.top)]
        if not self._native.penstock_logprobs(
            self._pool, logits.data_ptr(), rows, vocab, tokens.data_ptr(), most, *results
        ):
            raise MemoryError("There is no memory for log-probabilities.")
        return found


def open_drawer(threads: int) -> NativeDrawer | None:
    """One with threads of its own; None where the kernels are not built or there is no memory."""
    native = library()
    pool = native.penstock_pool_open(threads) if native is not None else None
    if native is None or pool is None:
        return None
    drawer = NativeDrawer(native, pool)
    # Not at exit: another thread may be drawing then.
    weakref.finalize(drawer, native.penstock_pool_close, pool).atexit = False
    return drawer
