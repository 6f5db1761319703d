"""A decoder in small integers on the CPU: what its matrices become, and its steps in one call each."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from penstock.engine.kernels.activation import Activation
from penstock.engine.layers.rotary import Rotary
from penstock.engine.layers.sampler import Drawer, indices
from penstock.engine.models.config import DecoderConfig
from penstock.engine.native import library as lib
from penstock.engine.native.quantized import Quantized
from penstock.engine.native.sampling import NativeDrawer
from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Room, Step
from penstock.errors import EngineUnavailableError

_ACTIVATIONS: Mapping[Activation, int] = {"silu": 0, "gelu": 1, "gelu_tanh": 2, "relu": 3}
_QUERY_KEY_NORMS = {None: 0, "head": 1, "projection": 2}
LEAST_ROWS = 256  # that logits may be asked of at once

_Kept = TypeVar("_Kept", npt.NDArray[Any], Tensor)


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix in the kernels' order. `bias` has an entry for each padded row."""

    panels: npt.NDArray[np.uint8]
    bias: npt.NDArray[np.float32] | None
    scale: float
    inputs: int
    outputs: int
    bits: int
    gated: bool


def pack(weight: Quantized, bias: Tensor | None = None, *, gated: bool = False) -> Packed:
    """`gated`: the first half of the rows are gates of the second; a panel has sixteen of each."""
    native = lib.library()
    assert native is not None, "only the native path packs"
    outputs, groups = weight.scales.shape
    panels = -(-outputs // lib.PANEL)
    order = np.full(panels * lib.PANEL, -1, dtype=np.int32)
    if gated:
        half = lib.PANEL // 2
        inner = np.full((panels * half), -1, dtype=np.int32)
        inner[: outputs // 2] = np.arange(outputs // 2)
        paired = np.stack((inner, np.where(inner < 0, -1, inner + outputs // 2)))
        order[:] = paired.reshape(2, panels, half).transpose(1, 0, 2).reshape(-1)
    else:
        order[:outputs] = np.arange(outputs)
    group_bytes = 4 * lib.PANEL + lib.PANEL * lib.GROUP * weight.bits // 8
    # Room for what the kernels fetch ahead.
    target = np.empty(panels * groups * group_bytes + 8192, dtype=np.uint8)
    native.penstock_pack(
        target.ctypes.data,
        weight.values.ctypes.data,
        weight.scales.ctypes.data,
        weight.offsets.ctypes.data,
        order.ctypes.data,
        panels,
        groups,
        weight.bits,
    )
    placed = None
    if bias is not None:
        placed = np.where(order < 0, np.float32(0), bias.float().numpy()[order])
    return Packed(target, placed, weight.scale, weight.columns, outputs, weight.bits, gated)


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeLayer:
    qkv: Packed
    attention_output: Packed
    gate_up: Packed
    down: Packed
    norms: Mapping[str, Tensor]  # float32, by the layer's names for them
    rotary: Rotary | None
    window: int | None


class NativeModel:
    """Not thread-safe: one caller steps, a few threads of its own compute."""

    precision = "int8"
    overlaps = False
    decode = None  # a step is one call as it is

    def __init__(
        self,
        config: DecoderConfig,
        embedding: Packed,
        layers: Sequence[NativeLayer],
        final_norm: Tensor,
        head: Packed | None,
        threads: int,
    ) -> None:
        """Where `head` is the embedding, it is the same object."""
        native = lib.library()
        assert native is not None, "the loader asks first"
        self.config = config
        self.kv_bytes_per_token = config.kv_bytes_per_token(torch.float16.itemsize)
        self.device = torch.device("cpu")
        self._native = native
        self._layers = layers
        self._head = head
        self._final_norm = final_norm
        self._kept: list[Any] = []  # what the structures point to
        self._cache = torch.empty(0)
        self._states = torch.empty(0)
        self._logits = torch.empty(0)
        self._model = lib.Model(
            embedding=self._matrix(embedding),
            head=self._matrix(head) if head is not None else lib.Matrix(),
            final_norm=self._pointer(final_norm),
            num_layers=config.num_layers,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            query_key_norm=_QUERY_KEY_NORMS[config.query_key_norm],
            activation=_ACTIVATIONS[config.activation],
            norm_eps=config.norm_eps,
            embedding_multiplier=config.embedding_multiplier,
            residual_multiplier=config.residual_multiplier,
            attention_scale=config.attention_scale,
            pool=native.penstock_pool_open(threads),
        )
        if not self._model.pool:
            raise EngineUnavailableError("There is no memory for the engine's threads.")
        self.drawer: Drawer = NativeDrawer(native, self._model.pool)
        # Not at exit: a step may be under way then, and the process gives everything back anyway.
        weakref.finalize(self, _release, native, self._model).atexit = False

    @property
    def weight_bytes(self) -> int:
        return sum(matrix.panels.nbytes for matrix in self._matrices())

    @property
    def weight_count(self) -> int:
        return sum(matrix.inputs * matrix.outputs for matrix in self._matrices())

    def _matrices(self) -> Iterator[Packed]:
        for layer in self._layers:
            yield from (layer.qkv, layer.attention_output, layer.gate_up, layer.down)
        if self._head is not None:
            yield self._head

    def open(self, room: Room) -> None:
        config, model = self.config, self._model
        cell = config.num_kv_heads * config.head_dim * room.block_size
        try:
            self._cache = torch.empty((config.num_layers, 2, room.num_blocks, cell), dtype=torch.float16)
        except RuntimeError:
            wanted = config.num_layers * 2 * room.num_blocks * cell * torch.float16.itemsize
            raise EngineUnavailableError(
                f"There is no memory for a KV cache of {wanted >> 20} MiB; lower kv_cache_memory."
            ) from None
        for rotary in {layer.rotary for layer in self._layers} - {None}:
            assert rotary is not None
            rotary.prepare(room.max_model_len)
        layers = [self._layer(layer, cache) for layer, cache in zip(self._layers, self._cache, strict=True)]
        model.layers = (lib.Layer * len(layers))(*layers)
        self._kept.append(model.layers)
        model.max_rows = max(room.max_rows, LEAST_ROWS)
        model.max_positions = room.max_model_len
        model.heads = lib.Heads(
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            room.block_size,
            config.attention_softcap or 0.0,
        )
        self._native.penstock_model_release(ctypes.byref(model))
        if not self._native.penstock_model_prepare(ctypes.byref(model)):
            raise EngineUnavailableError("There is no memory for the engine's steps; lower max_step_tokens.")
        size = (model.max_rows, config.hidden_size)
        states = ctypes.cast(model.states, ctypes.POINTER(ctypes.c_float))
        self._states = torch.from_numpy(np.ctypeslib.as_array(states, size))

    def make_ready(self, slots: Slots) -> None:
        pass

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        for source, target in copies:
            self._cache[:, :, target] = self._cache[:, :, source]

    def forward(self, step: Step, slots: Slots) -> Tensor:
        rows = sum(step.counts)
        # An array of Python's own: that of numpy takes five times as long to say where it lies.
        numbers = array("i", (*step.slots, *step.starts, *step.counts))
        place, size = numbers.buffer_info()[0], len(step.slots) * numbers.itemsize
        granted = lib.Step(
            sequences=len(step.slots),
            rows=rows,
            slots=place,
            starts=place + size,
            counts=place + 2 * size,
            tokens=slots.tokens.data_ptr(),
            blocks=slots.blocks.data_ptr(),
            tokens_stride=slots.tokens.stride(0),
            blocks_stride=slots.blocks.stride(0),
        )
        if not self._native.penstock_forward(ctypes.byref(self._model), ctypes.byref(granted)):
            raise MemoryError("There is no memory for a step.")
        if step.wanted is None:
            return self._states[:rows]
        return self._states.index_select(0, indices(list(step.wanted), self.device))

    def activation_bytes(self, max_rows: int, max_running: int, block_size: int, max_len: int) -> int:
        return 0

    def logits(self, hidden: Tensor) -> Tensor:
        assert self._head is not None, "the core asks for logits only where there is an output matrix"
        hidden = hidden.contiguous()
        rows = hidden.shape[0]
        if self._logits.shape[0] < rows:
            self._logits = torch.empty((rows, self.config.vocab_size))
        logits = self._logits[:rows]
        self._native.penstock_logits(ctypes.byref(self._model), hidden.data_ptr(), rows, logits.data_ptr())
        cap = self.config.logits_softcap
        if cap is not None:
            logits.div_(cap).tanh_().mul_(cap)
        return logits if self.config.logits_divisor == 1.0 else logits.div_(self.config.logits_divisor)

    def normed(self, hidden: Tensor) -> Tensor:
        return torch.nn.functional.rms_norm(
            hidden, self._final_norm.shape, self._final_norm, self.config.norm_eps
        )

    def _layer(self, layer: NativeLayer, cache: Tensor) -> lib.Layer:
        made = lib.Layer(
            qkv=self._matrix(layer.qkv),
            attention_output=self._matrix(layer.attention_output),
            gate_up=self._matrix(layer.gate_up),
            down=self._matrix(layer.down),
            keys=cache[0].data_ptr(),
            values=cache[1].data_ptr(),
            window=layer.window or 0,
            **{name: self._pointer(norm) for name, norm in layer.norms.items()},
        )
        if layer.rotary is not None:
            made.cos, made.sin = self._pointer(layer.rotary.cos), self._pointer(layer.rotary.sin)
            made.rotated = 2 * layer.rotary.cos.shape[1]
        return made

    def _matrix(self, packed: Packed) -> lib.Matrix:
        return lib.Matrix(
            panels=self._keep(packed.panels).ctypes.data,
            bias=None if packed.bias is None else self._keep(packed.bias).ctypes.data,
            scale=packed.scale,
            inputs=packed.inputs,
            outputs=packed.outputs,
            bits=packed.bits,
            gated=packed.gated,
        )

    def _pointer(self, tensor: Tensor) -> int:
        return int(self._keep(tensor.float().contiguous()).data_ptr())

    def _keep(self, owner: _Kept) -> _Kept:
        self._kept.append(owner)
        return owner


def _release(native: ctypes.CDLL, model: lib.Model) -> None:
    native.penstock_pool_close(model.pool)
    native.penstock_model_release(ctypes.byref(model))
