"""What descriptions of decoders have in common: sizes, rotary embedding, windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.engine.layers.rotary import Rope
from penstock.engine.models.config import DecoderConfig, ExpertsConfig, LayerConfig
from penstock.engine.models.fields import Fields

MAX_LAYERS = 1024
# config.json's names of activation functions; the last three are one function.
_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}


def decoder_config(
    fields: Fields,
    architecture: str,
    *,
    windows: Sequence[int | None] | None = None,
    rotated: Sequence[bool] | None = None,
    expert_layers: Sequence[bool] | None = None,
    head_dim: int | None = None,
    activation: str = "hidden_act",
    default_activation: str = "silu",
    theta: float = 10_000.0,
    local_theta: float | None = None,
    tied: bool = False,
    norm_eps: float = 1e-6,
    rope_aliases: Mapping[str, str] | None = None,
    **switches: Any,
) -> DecoderConfig:
    """A decoder as its fields describe it.

    `windows`, `rotated` and `expert_layers` say something of each layer; without them no layer has a
    window, all are rotated, none has experts. `head_dim`, `theta`, `tied` and `norm_eps` are what holds
    where the file does not say. `switches` are fields of DecoderConfig.
    """
    layers = num_layers(fields)
    hidden = fields.integer("hidden_size")
    heads = fields.integer("num_attention_heads")
    size = fields.integer("head_dim", head_dim or max(1, hidden // heads))
    if head_dim is None and "head_dim" not in fields and hidden % heads:
        fields.complain(
            f"the hidden size {hidden} is not a multiple of {heads} heads, and no head_dim is given"
        )
    context = fields.integer("max_position_embeddings")
    full, local = read_ropes(
        fields, size, context, theta=theta, local_theta=local_theta, aliases=rope_aliases or {}
    )
    windows = windows or [None] * layers
    qkv_bias = switches.pop("qkv_bias", None)
    if qkv_bias is None:
        qkv_bias = fields.flag("attention_bias", False)
    settings: dict[str, Any] = {
        "attention_scale": size**-0.5,
        "attention_output_bias": fields.flag("attention_output_bias", qkv_bias),
        "mlp_bias": fields.flag("mlp_bias", False),
        **switches,
    }
    return DecoderConfig(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=fields.integer("num_key_value_heads", heads),
        head_dim=size,
        context_length=context,
        longest_context=context if local_theta is not None else _stretched(context, full),
        norm_eps=fields.number("rms_norm_eps", norm_eps),
        layers=tuple(
            LayerConfig(
                rope=(full if windows[i] is None else local) if rotated is None or rotated[i] else None,
                window=windows[i],
                experts=expert_layers is not None and expert_layers[i],
            )
            for i in range(layers)
        ),
        tied_embeddings=fields.flag("tie_word_embeddings", tied),
        qkv_bias=qkv_bias,
        activation=_activation(fields, activation, default_activation),
        **settings,
    )


def num_layers(fields: Fields) -> int:
    return fields.integer("num_hidden_layers", most=MAX_LAYERS)


def windows_by_layer(fields: Fields, window: int | None, slides: Callable[[int], bool]) -> list[int | None]:
    """The window of each layer: by `layer_types` where the file has it, else for those `slides` names."""
    layers = num_layers(fields)
    types = fields.items("layer_types", str, layers)
    if types is None:
        sliding = [slides(i) and window is not None for i in range(layers)]
    else:
        for kind in sorted(set(types) - {"sliding_attention", "full_attention"}):
            fields.complain(f"the layer type {kind!r} is neither sliding_attention nor full_attention")
        sliding = [kind == "sliding_attention" for kind in types]
    if any(sliding) and window is None:
        fields.complain("there are layers of sliding attention, but no sliding_window")
    return [window if slides_here else None for slides_here in sliding]


def switched_window(fields: Fields, default: int | None) -> int | None:
    """The window of families that have one only with `use_sliding_window`."""
    window = fields.optional_integer("sliding_window", default)
    return window if fields.flag("use_sliding_window", False) else None


def experts_config(fields: Fields, *, intermediate_size: str, normalized: bool) -> ExpertsConfig:
    """`intermediate_size` is the field that has the size of an expert."""
    return ExpertsConfig(
        count=fields.integer("num_local_experts" if "num_local_experts" in fields else "num_experts"),
        per_token=fields.integer("num_experts_per_tok"),
        intermediate_size=fields.integer(intermediate_size),
        normalized=normalized,
    )


def _activation(fields: Fields, name: str, default: str) -> Any:
    given = fields.text(name, default)
    if given not in _ACTIVATIONS:
        fields.complain(
            f"the activation {given!r} is not known here; known are {', '.join(sorted(_ACTIVATIONS))}"
        )
    return _ACTIVATIONS.get(given, "silu")


# ---------------------------------------------------------------- rotary embedding


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


def _stretched(context: int, rope: Rope) -> int:
    """How many tokens may be asked for where a file's context is the one before the stretching."""
    match rope.kind:
        case "linear" | "dynamic":
            return max(context, int(context * rope.factor))
        case "yarn":
            return max(context, int(rope.original_context * rope.factor))
    return context
