"""Steps with chunks of prompts, captured but for their attention.

Attention is cut by the lengths of a step's sequences, all else by its number of rows alone. A small model
computes a step sooner than the host could launch its kernels one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.decoder import Attention, GpuDecoder, RowInputs
from penstock.engine.gpu.graphs import Cut, Replay
from penstock.engine.gpu.inputs import RowBuffers

# What a GPU computes while the host launches a layer kernel by kernel: about a millisecond.
LAYER_OPERATIONS = 6e11

CapturePieces = Callable[[Callable[[Cut], None]], list[Replay] | None]


def worthwhile_rows(weights_per_layer: int, most: int) -> int:
    """Up to how many rows of a step the host would take longer than the GPU."""
    return min(most, int(LAYER_OPERATIONS / (2 * weights_per_layer)))


def filled_up(rows: int) -> int:
    """Sizes that steps are filled up to, 33 of them up to 8,192 rows."""
    if rows <= 128:
        return max(32, 1 << (rows - 1).bit_length())
    unit = 64 if rows <= 512 else 128 if rows <= 2048 else 512
    return -(-rows // unit) * unit


@dataclass(frozen=True, slots=True)
class _Look:
    """What one attention is given. The tensors do not keep their memory from what is captured behind it."""

    query: Tensor
    cache: PagedLayer
    window: int | None
    out: Tensor


@dataclass(frozen=True, slots=True)
class _Captured:
    pieces: list[Replay]
    looks: list[_Look]  # one behind each piece
    hidden: Tensor
    attended: Tensor


class Pieces:
    def __init__(
        self, decoder: GpuDecoder, cache: Sequence[PagedLayer], capture: CapturePieces, most_rows: int
    ) -> None:
        """Steps of up to `most_rows` are captured."""
        self._decoder = decoder
        self._cache = cache
        self._capture = capture
        self._most_rows = most_rows
        self._buffers = RowBuffers.of(filled_up(most_rows), decoder.device)
        self._captured: dict[int, _Captured | None] = {}  # by rows; None: it cannot be

    def buffers(self, rows: int) -> RowBuffers | None:
        """Where the inputs of a step are to be built, filled up; None: it is not to be captured."""
        if not self._decoder.skinny_rows < rows <= self._most_rows:
            return None
        return self._buffers.first(filled_up(rows))

    def forward(self, inputs: RowInputs, rows: int, attention: Attention) -> Tensor:
        """As the decoder's, of the first rows; `inputs` are in the buffers."""
        size = inputs.tokens.shape[0]
        captured = self._captured.get(size)
        if captured is None:
            hidden, attended = self._decoder.attended(inputs, self._cache, attention)
            if size not in self._captured:
                self._captured[size] = self._captured_now(inputs)
        else:
            for piece, look in zip(captured.pieces, captured.looks, strict=True):
                piece()
                attention(look.query, look.cache, look.window, look.out)
            hidden, attended = captured.hidden, captured.attended
        if inputs.wanted is None:  # the next step uses the same memory
            hidden = hidden[:rows].clone()
        return self._decoder.finished(hidden, attended[:rows], inputs.wanted)

    def _captured_now(self, inputs: RowInputs) -> _Captured | None:
        looks: list[_Look] = []
        results: list[Tensor] = []

        def compute(cut: Cut) -> None:
            looks.clear()

            def look(query: Tensor, cache: PagedLayer, window: int | None, out: Tensor) -> None:
                looks.append(_Look(_unowned(query), cache, window, _unowned(out)))
                if len(looks) < len(self._cache):
                    cut()

            results[:] = map(_unowned, self._decoder.attended(inputs, self._cache, look))

        pieces = self._capture(compute)
        return None if pieces is None else _Captured(pieces, looks, *results)


class _Memory:
    """A tensor's memory without the tensor, as torch reads others' memory."""

    def __init__(self, tensor: Tensor) -> None:
        size = tensor.element_size()
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape),
            "strides": tuple(stride * size for stride in tensor.stride()),
            "typestr": f"<i{size}",
            "data": (tensor.data_ptr(), False),
            "version": 3,
        }


def _unowned(tensor: Tensor) -> Tensor:
    """The same place in memory. That is no reason not to use it for something else: who captures several
    graphs into one pool, and replays them in the same order, has it for as long as he had the tensor."""
    if not tensor.is_cuda:
        return tensor
    return torch.as_tensor(_Memory(tensor), device=tensor.device).view(tensor.dtype)
