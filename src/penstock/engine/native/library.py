"""The compiled kernels, as ctypes sees them. Every structure here mirrors one in `source/`."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path

from penstock.engine.native.build import VARIANTS, is_current, library_path
from penstock.errors import ConfigError
from penstock.machine import cpu_flags

VARIABLE = "PENSTOCK_NATIVE"  # of the environment: which variant to use
GROUP = PANEL = 32  # weights that share a scale; rows of a matrix that lie together


class Matrix(Structure):
    _fields_ = (
        ("panels", c_void_p),
        ("bias", c_void_p),
        ("scale", c_float),
        ("inputs", c_int32),
        ("outputs", c_int32),
        ("bits", c_int32),
        ("gated", c_int32),
    )


class Layer(Structure):
    _fields_ = (
        ("qkv", Matrix),
        ("attention_output", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("attention_norm", c_void_p),
        ("attention_post_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("mlp_post_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("rotated", c_int32),
        ("window", c_int32),
    )


class Heads(Structure):
    _fields_ = (
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("dim", c_int32),
        ("block_size", c_int32),
        ("softcap", c_float),
    )


class Small(Structure):
    _fields_ = (("values", c_void_p), ("scales", c_void_p), ("sums", c_void_p), ("groups", c_int32))


class Model(Structure):
    _fields_ = (
        ("pool", c_void_p),
        ("layers", POINTER(Layer)),
        ("embedding", Matrix),
        ("head", Matrix),
        ("final_norm", c_void_p),
        ("num_layers", c_int32),
        ("hidden", c_int32),
        ("intermediate", c_int32),
        ("query_key_norm", c_int32),
        ("activation", c_int32),
        ("max_rows", c_int32),
        ("max_positions", c_int32),
        ("norm_eps", c_float),
        ("embedding_multiplier", c_float),
        ("residual_multiplier", c_float),
        ("attention_scale", c_float),
        ("heads", Heads),
        ("states", c_void_p),
        ("normed", c_void_p),
        ("projected", c_void_p),
        ("attended", c_void_p),
        ("inner", c_void_p),
        ("small", Small),
        ("scratch", c_void_p),
    )


class Step(Structure):
    _fields_ = (
        ("sequences", c_int32),
        ("rows", c_int32),
        ("slots", c_void_p),
        ("starts", c_void_p),
        ("counts", c_void_p),
        ("tokens", c_void_p),
        ("blocks", c_void_p),
        ("tokens_stride", c_int64),
        ("blocks_stride", c_int64),
        ("row_sequence", c_void_p),
        ("row_position", c_void_p),
        ("tile_first", c_void_p),
        ("tiles", c_int32),
    )


_SIGNATURES = {
    "penstock_pool_open": ([c_int32], c_void_p),
    "penstock_pool_close": ([c_void_p], None),
    "penstock_model_size": ([], c_int32),
    "penstock_layer_size": ([], c_int32),
    "penstock_step_size": ([], c_int32),
    "penstock_model_prepare": ([POINTER(Model)], c_int32),
    "penstock_model_release": ([POINTER(Model)], None),
    "penstock_forward": ([POINTER(Model), POINTER(Step)], c_int32),
    "penstock_logits": ([POINTER(Model), c_void_p, c_int32, c_void_p], None),
    "penstock_draw": ([c_void_p] * 2 + [c_int32] * 2 + [c_void_p] * 8, c_int32),
    "penstock_logprobs": ([c_void_p] * 2 + [c_int32] * 2 + [c_void_p, c_int32] + [c_void_p] * 4, c_int32),
    "penstock_pack": ([c_void_p] * 5 + [c_int32] * 3, None),
    "penstock_quantize": (
        [c_void_p, c_int64, c_int32, c_float, c_void_p, c_void_p, c_void_p],
        None,
    ),
}


def choice() -> str:
    """What PENSTOCK_NATIVE asks for: a variant, off, or auto for the best."""
    found = os.environ.get(VARIABLE) or "auto"
    if found not in ("auto", "off", *VARIANTS):
        raise ConfigError(f"{VARIABLE} must be auto, off, {' or '.join(VARIANTS)}, got {found!r}.")
    return found


def library() -> ctypes.CDLL | None:
    """The best variant that is asked for, built, and such as this processor can run; None without any."""
    return _library(choice())


@cache
def _library(choice: str) -> ctypes.CDLL | None:
    flags = cpu_flags()
    for variant, needs in VARIANTS.items():
        if choice in ("auto", variant) and flags.issuperset(needs) and is_current(variant):
            found = _opened(library_path(variant))
            if found is not None:
                return found
    return None


def _opened(path: Path) -> ctypes.CDLL | None:
    try:
        found = ctypes.CDLL(str(path))
        for name, (arguments, result) in _SIGNATURES.items():
            function = getattr(found, name)
            function.argtypes, function.restype = arguments, result
    except (OSError, AttributeError):  # of another version, or damaged
        return None
    sizes = (found.penstock_model_size(), found.penstock_layer_size(), found.penstock_step_size())
    return found if sizes == tuple(map(ctypes.sizeof, (Model, Layer, Step))) else None
