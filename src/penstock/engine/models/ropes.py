"""Reading what a description says of rotary embedding, in any of the ways that files say it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.engine.layers.rotary import Rope
from penstock.engine.models.fields import Fields


def read_ropes(
    fields: Fields,
    head_dim: int,
    context: int,
    *,
    theta: float,
    local_theta: float | None,
    aliases: Mapping[str, str],
) -> tuple[Rope, Rope]:
    """The rope of layers that see everything, and that of layers with a window.

    Files say it in three ways: `rope_theta` and `rope_scaling` side by side, `rope_parameters` with both
    in it, and `rope_parameters` with one such object for each type of layer. A family with a
    `local_theta` does not scale layers with a window.
    """

    def rope(scaling: Fields) -> Rope:
        return _rope(fields, scaling, head_dim, context, aliases)

    part = fields.number("partial_rotary_factor", 1.0)
    common = {"partial_rotary_factor": part, "rope_theta": fields.number("rope_theta", theta, above=1.0)}
    local = common
    if local_theta is not None:
        local = {**common, "rope_theta": fields.number("rope_local_base_freq", local_theta, above=1.0)}
    nested = fields.section("rope_parameters")
    if "full_attention" in nested or "sliding_attention" in nested:
        return (
            rope(nested.section("full_attention", **common)),
            rope(nested.section("sliding_attention", **local)),
        )
    name = "rope_scaling" if "rope_scaling" in fields else "rope_parameters"
    full = rope(fields.section(name, **common))
    return full, full if local_theta is None else rope(Fields(local))


def _rope(fields: Fields, scaling: Fields, head_dim: int, context: int, aliases: Mapping[str, str]) -> Rope:
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    kind = aliases.get(kind, kind)
    dim = int(head_dim * scaling.number("partial_rotary_factor", 1.0))
    common: dict[str, Any] = {
        "dim": scaling.integer("rotary_dim", dim, least=0),
        "theta": scaling.number("rope_theta", above=1.0),
    }
    # Some families keep it beside the scaling instead of in it, and then that one counts.
    outside = "original_max_position_embeddings" in fields
    original = (fields if outside else scaling).integer("original_max_position_embeddings", context)
    match kind:
        case "default":
            return Rope(**common)
        case "linear":
            return Rope(**common, kind="linear", factor=scaling.number("factor"))
        case "dynamic":
            return Rope(**common, kind="dynamic", factor=scaling.number("factor"), original_context=context)
        case "llama3":
            return Rope(**common, kind="llama3", original_context=original, **_llama3(scaling))
        case "yarn":
            return Rope(**common, kind="yarn", original_context=original, **_yarn(scaling))
        case "longrope":
            factors = _longrope(scaling, context, original)
            return Rope(**common, kind="longrope", original_context=original, **factors)
    fields.complain(
        f"the rope scaling {kind!r} is not known here; known are default, linear, dynamic, yarn, longrope "
        "and llama3"
    )
    return Rope(**common)


def _llama3(scaling: Fields) -> dict[str, Any]:
    low, high = scaling.number("low_freq_factor"), scaling.number("high_freq_factor")
    if low >= high and not scaling.problems:
        scaling.complain(f"low_freq_factor, {low:g}, is not below high_freq_factor, {high:g}")
    return {"factor": scaling.number("factor"), "low_freq_factor": low, "high_freq_factor": high}


def _yarn(scaling: Fields) -> dict[str, Any]:
    factor = scaling.number("factor")
    attention = scaling.optional_number("attention_factor")
    if attention is None:
        mscale, all_dims = scaling.optional_number("mscale"), scaling.optional_number("mscale_all_dim")
        attention = _magnitude(factor, 1.0) * scaling.number("extra_attention_factor", 1.0)
        if mscale is not None and all_dims is not None:
            attention = _magnitude(factor, mscale) / _magnitude(factor, all_dims)
    return {
        "factor": factor,
        "attention_factor": attention,
        "beta_fast": scaling.number("beta_fast", 32.0),
        "beta_slow": scaling.number("beta_slow", 1.0),
        "truncate": scaling.flag("truncate", True),
    }


def _magnitude(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _longrope(scaling: Fields, context: int, original: int) -> dict[str, Any]:
    factor = scaling.number("factor", context / original)
    attention = scaling.optional_number("attention_factor")
    if attention is None:
        if factor > 1 and original > 1:
            attention = math.sqrt(1 + math.log(factor) / math.log(original))
        else:
            attention = 1.0
    return {
        "factor": factor,
        "attention_factor": attention,
        "short_factors": scaling.numbers("short_factor"),
        "long_factors": scaling.numbers("long_factor"),
    }


def stretched(context: int, rope: Rope) -> int:
    """How many tokens may be asked for where a file's context is the one before the stretching."""
    match rope.kind:
        case "linear" | "dynamic":
            return max(context, int(context * rope.factor))
        case "yarn":
            return max(context, int(rope.original_context * rope.factor))
    return context
