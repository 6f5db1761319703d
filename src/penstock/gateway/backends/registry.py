"""Which kind of server is spoken to by which class. A further kind is one file, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.config import BackendConfig, HealthConfig, ModelConfig
from penstock.gateway.backends import Backend
from penstock.gateway.backends.anthropic import AnthropicBackend
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
