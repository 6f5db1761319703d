"""Which kind of server is spoken to by which class. A further kind is one file, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.config import BackendConfig, HealthConfig, ModelConfig
from penstock.gateway.backends import Backend, relay_options, triton_options
from penstock.gateway.backends.anthropic import AnthropicBackend, anthropic_options
from penstock.gateway.backends.presets import PRESETS
from penstock.gateway.backends.relay import RelayBackend
from penstock.gateway.backends.triton import TritonBackend

Builder = Callable[[ModelConfig, BackendConfig, HealthConfig], Backend]

# Engines of our own are built where they are started.
SERVERS: Final[dict[str, Builder]] = {
    "penstock": RelayBackend,
    "vllm": RelayBackend,
    "sglang": RelayBackend,
    "llamacpp": RelayBackend,
    "tgi": RelayBackend,
    "trtllm": RelayBackend,
    "openai_compatible": RelayBackend,
    "openai": RelayBackend,
    "anthropic": AnthropicBackend,
    "triton": TritonBackend,
}

# How the `options` of a kind are read; all of these raise ConfigError.
OPTIONS: Final[dict[str, Callable[[BackendConfig], object]]] = {
    **dict.fromkeys(PRESETS, relay_options.read_options),
    "anthropic": anthropic_options,
    "triton": triton_options.read_options,
}


def check(config: BackendConfig) -> None:
    """Raise ConfigError for what no backend of its kind could be built with. Builds and opens nothing."""
    read = OPTIONS.get(config.kind)
    if read is not None:
        read(config)
