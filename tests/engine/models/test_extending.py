"""The page on architectures names everything there is."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.registry import ARCHITECTURES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "extending.md").read_text()


def test_every_architecture_is_in_the_table() -> None:
    for architecture in ARCHITECTURES:
        row = f"| `{architecture.class_name}` | `{architecture.gguf_name or 'llama'}` |"
        assert row in PAGE


def test_every_switch_is_explained() -> None:
    for field in fields(DecoderConfig):
        if field.default is not MISSING or field.name in ("layers", "attention_scale"):
            assert f"`{field.name}" in PAGE, field.name


def test_the_example_is_the_file() -> None:
    source = (ROOT / "src" / "penstock" / "engine" / "models" / "granite.py").read_text()
    example = PAGE.split("```python\n")[1].split("```")[0]
    assert source.endswith(example)
