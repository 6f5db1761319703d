"""A random model that loads in a second and chats in bytes, for tests in which engines come and go."""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from tests.engine.tiny import save_tiny_llama

CONTEXT = 8192


def save_tiny_model(path: Path) -> Path:
    """Weights and a tokenizer with a token for each byte."""
    save_tiny_llama(path, max_position_embeddings=CONTEXT)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.save(str(path / "tokenizer.json"))
    return path
