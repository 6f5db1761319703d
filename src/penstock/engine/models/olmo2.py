"""OLMo 2: norms after attention and MLP only, and of all query heads and all key heads together."""

from __future__ import annotations

from penstock.engine.models.architecture import POST_NORMS, TENSORS, Architecture
from penstock.engine.models.common import decoder_config
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields


def _config(fields: Fields) -> DecoderConfig:
    return decoder_config(
        fields, "olmo2", norm_eps=1e-5, norms="after", query_key_norm="projection", mlp_bias=False
    )


ARCHITECTURE = Architecture(
    name="olmo2",
    class_name="Olmo2ForCausalLM",
    gguf_name="olmo2",
    config=_config,
    tensors={**TENSORS, **POST_NORMS},
)
