from __future__ import annotations

from pathlib import Path

import pytest

from penstock.hub import ModelFiles
from penstock.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer(default_model: Path) -> Tokenizer:
    """The default model's, built from its GGUF metadata."""
    return Tokenizer.load(ModelFiles("default", default_model, "gguf"))
