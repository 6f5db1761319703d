"""Answers that are none: empty, refused, cut off, or not in the form that was asked for."""

from __future__ import annotations

import re
from typing import Final, Literal

Fault = Literal["empty", "refusal", "cut"]

_REFUSAL: Final = re.compile(
    r"^\W*(?:(?:i'?m|i am|we are|we're)\s+(?:very |really |so |terribly )?(?:sorry|afraid|unable|not able)\b"
    r"|(?:sorry|unfortunately|(?:my )?apologies)\b[^.\n]{0,80}\b(?:can'?t|cannot|unable|not able|won't)\b"
    r"|i (?:can'?t|cannot|can not|won'?t|will not|must decline|decline|don'?t feel comfortable)\b"
    r"|as an? (?:ai|artificial|language|large)\b[^.\n]{0,80}\b(?:can'?t|cannot|unable|don'?t|do not)\b"
    r"|(?:es tut mir leid|ich kann (?:dir|ihnen|das) nicht|je ne peux pas|lo siento|no puedo)\b)",
    re.IGNORECASE,
)
# What waits for more: a mark or word that something must follow, or a calculator's note that was not closed.
_DANGLING: Final = re.compile(r"(?:[,:;(\[{=+]|\s[-*/x]|\b(?:and|or|the|an|of|to|with|for))$")
_NOTE: Final = re.compile(r"<<[\d\s+*/().=%$,-]*$")
_REFUSAL_CHARACTERS: Final = 600  # longer texts that begin with regret go on to answer


def fault_of(answer: str, *, cut: bool = False) -> Fault | None:
    """What is wrong with an answer by itself. `cut`: whoever asked knows that it stopped at its limit."""
    text = answer.strip()
    if not text:
        return "empty"
    if cut or _is_cut(text):
        return "cut"
    if len(text) <= _REFUSAL_CHARACTERS and _REFUSAL.match(text.replace("\u2019", "'")):
        return "refusal"
    return None


def _is_cut(text: str) -> bool:
    """Whether a text stops in the middle: a fence was never closed, or something waits for more."""
    if text.count("```") % 2 == 1 or _NOTE.search(text[-80:]):
        return True
    return len(text) > 40 and bool(_DANGLING.search(text[-40:]))
