"""SmolLM 3: a llama in which every fourth layer does not mark positions."""

from __future__ import annotations

from penstock.engine.models.architecture import Architecture
from penstock.engine.models.common import decoder_config, num_layers, switched_window, windows_by_layer
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields


def _config(fields: Fields) -> DecoderConfig:
    layers = num_layers(fields)
    interval = fields.integer("no_rope_layer_interval", 4)
    # Despite its name, a one in `no_rope_layers` is a layer that is rotated.
    flags = fields.items("no_rope_layers", int, layers)
    rotated = [(i + 1) % interval != 0 if flags is None else bool(flags[i]) for i in range(layers)]
    return decoder_config(
        fields,
        "smollm3",
        windows=windows_by_layer(fields, switched_window(fields, None), lambda layer: not rotated[layer]),
        rotated=rotated,
        theta=2_000_000.0,
        tied=True,
    )


ARCHITECTURE = Architecture(
    name="smollm3",
    class_name="SmolLM3ForCausalLM",
    gguf_name="smollm3",
    config=_config,
    gguf_interleaves_rotary=True,
)
