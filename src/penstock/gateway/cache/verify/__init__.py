"""Whether the answer to one question may be given to another: looks at what embeddings do not see.

Numbers, negation, opposites, names, direction, the kind of question, and whether the same is said at all.
Knows texts and nothing else: no store, no clock, no encoder; English by rules, else only equality.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.gateway.cache.verify.checks import CHECKS
from penstock.gateway.cache.verify.literal import differs
from penstock.gateway.cache.verify.reading import fold, read

# Longer texts must be the same to the letter: the rules are for questions, and their work is bounded.
MAX_CHARACTERS: Final = 600
LEAST_SIMILARITY: Final = 0.75  # below, words that match match by accident
# Code, formulas and layout, where every character may count.
_LITERAL: Final = re.compile(r"```|[{}<>=|\\^~]|\n\s*\n|\w\(|\[|\w+_\w|https?://|[a-z][A-Z]\w*\.|//")


@dataclass(frozen=True, slots=True)
class Decision:
    accept: bool
    reasons: tuple[str, ...]  # why not, or how they are the same


def accept(a: str, b: str, similarity: float) -> Decision:
    """Whether `a` and `b`, whose vectors have this cosine, ask the same."""
    if a == b:
        return Decision(True, ("the same text",))
    if max(len(a), len(b)) > MAX_CHARACTERS:
        return Decision(False, ("too long to be compared word by word",))
    if _LITERAL.search(a) or _LITERAL.search(b):
        return Decision(a.strip() == b.strip(), ("code or formulas, which must be the same to the letter",))
    if (difference := differs(a, b)) is not None:
        return Decision(False, (difference,))
    if fold(a) == fold(b):
        return Decision(True, ("the same but for case and marks",))
    if not similarity >= LEAST_SIMILARITY:
        return Decision(False, (f"similarity {similarity:.3f} is under {LEAST_SIMILARITY}",))
    first, second = read(a), read(b)
    if not (first.english and second.english):
        return Decision(False, ("not in English, where only the same text is accepted",))
    reasons = tuple(
        reason for check in CHECKS.values() if (reason := check(first, second, similarity)) is not None
    )
    return Decision(not reasons, reasons or ("the same words in the same sense",))
