"""What descriptions of decoders have in common: sizes, windows, experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.engine.kernels.activation import Activation
from penstock.engine.models.config import DecoderConfig, ExpertsConfig, LayerConfig
from penstock.engine.models.fields import Fields
from penstock.engine.models.ropes import read_ropes, stretched

MAX_LAYERS = MAX_EXPERTS = 1024
# config.json's names of activation functions; the last three are one function.
_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
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
    qkv_bias: bool | None = None,
    **switches: Any,
) -> DecoderConfig:
    """A decoder as its fields describe it.

    `windows`, `rotated` and `expert_layers` say something of each layer; without them no layer has a
    window, all are rotated, none has experts. `head_dim`, `theta`, `tied` and `norm_eps` are what holds
    where the file does not say. `switches` are fields of DecoderConfig.
    """
    if fields.flag("use_bidirectional_attention", False) or not fields.flag("is_causal", True):
        fields.complain(
            "it has attention both ways (use_bidirectional_attention, or is_causal is false), which no "
            "decoder computes"
        )
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
    if windows is None:
        windows = [None] * layers
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
        longest_context=context if local_theta is not None else stretched(context, full),
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
        activation=read_activation(fields, activation, default_activation),
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
        count=fields.integer(
            "num_local_experts" if "num_local_experts" in fields else "num_experts", most=MAX_EXPERTS
        ),
        per_token=fields.integer("num_experts_per_tok"),
        intermediate_size=fields.integer(intermediate_size),
        normalized=normalized,
    )


def read_activation(fields: Fields, name: str, default: str) -> Activation:
    given = fields.text(name, default)
    if given not in _ACTIVATIONS:
        fields.complain(
            f"the activation {given!r} is not known here; known are {', '.join(sorted(_ACTIVATIONS))}"
        )
    return _ACTIVATIONS.get(given, "silu")
