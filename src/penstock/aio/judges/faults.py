"""Answers that are none: empty, refused, cut off, or not in the form that was asked for."""

from __future__ import annotations

import re
from typing import Final, Literal

from penstock.aio.refusal import refuses

Fault = Literal["empty", "refusal", "cut"]

# What waits for more: a mark or word that something must follow, or a calculator's note that was not closed.
_DANGLING: Final = re.compile(r"(?:[,:;(\[{=+]|\s[-*/x]|\b(?:and|or|the|an|of|to|with|for))$")
_NOTE: Final = re.compile(r"<<[\d\s+*/().=%$,-]*$")


def fault_of(answer: str, *, cut: bool = False) -> Fault | None:
    """What is wrong with an answer by itself. `cut`: whoever asked knows that it stopped at its limit."""
    text = answer.strip()
    if not text:
        return "empty"
    if cut or _is_cut(text):
        return "cut"
    return "refusal" if refuses(text) else None


def _is_cut(text: str) -> bool:
    """Whether a text stops in the middle: a fence was never closed, or something waits for more."""
    if text.count("```") % 2 == 1 or _NOTE.search(text[-80:]):
        return True
    return len(text) > 40 and bool(_DANGLING.search(text[-40:]))
