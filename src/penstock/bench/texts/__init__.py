"""Texts that quality is measured on: written for this project, so that no model was trained on them.

They are data and never change: a figure is comparable only with figures of the same text.
Knows nothing of models or tokens.
"""

from __future__ import annotations

from importlib.resources import files


def english() -> str:
    """Some 3,000 tokens: narrative, explanation, dialogue, a letter, instructions, a little code."""
    return files(__name__).joinpath("english.txt").read_text(encoding="utf-8")
