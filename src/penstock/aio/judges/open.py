"""Questions to which two good answers need not agree: what is drawn, and what is made up."""

from __future__ import annotations

import re
from typing import Final

_THINGS: Final = (
    r"(?:numbers?|integers?|digits?|letters?|words?|names?|colou?rs?|facts?|sentences?|strings?|characters?"
    r"|examples?|person|thing|city|country|animal|card|date|password)"
)
_WORKS: Final = (
    r"(?:jokes?|poems?|stor(?:y|ies)|haikus?|limericks?|songs?|lyrics|raps?|riddles?|puns?|tales?|slogans?"
    r"|taglines?|sonnets?|verses?|essays?|screenplays?|dialogues?|toasts?|speech(?:es)?)"
)
_DRAWN: Final = re.compile(
    rf"\brandom(?:ly)?\s+(?:\w+\s+){{0,2}}{_THINGS}\b"
    r"|\b(?:pick|choose|select|draw|name|give)\b[^.?!\n]{0,60}\b(?:at random|randomly)\b"
    r"|\b(?:pick|choose|think of|name|guess|invent|make up|give me|tell me)\s+"
    rf"(?:a|an|any|some|one|two|three)\s+(?:\w+\s+){{0,2}}{_THINGS}\b"
    r"|\b(?:flip|toss) a coin\b|\broll (?:a |the |two )?(?:die|dice)\b|\bsurprise me\b|\bbrainstorm\b"
    r"|\b(?:zufällig|zufallszahl|aléatoire|aleatori)|随机|ランダム|случайн",
    re.IGNORECASE,
)
_MADE_UP: Final = re.compile(
    rf"\b(?:tell|write|compose|make up|invent|create|give)\b(?:\s+[\w',-]+){{0,5}}?\s+{_WORKS}\b"
    r"|\b(?:witz|gedicht|geschichte|blague|poème|chiste|poema|cuento|barzelletta)\b|笑话|故事|анекдот|стих",
    re.IGNORECASE,
)
# What is asked about a draw has one answer.
_WORKED_OUT: Final = re.compile(
    r"\b(?:probab\w*|expect(?:ed|ation)|chances?|odds|variance|distribut\w*|likel\w*|on average"
    r"|how (?:many|much|long|often|far|old))\b",
    re.IGNORECASE,
)


def is_open(question: str) -> bool:
    """Whether answers that differ may both be good: then that they do says nothing against either."""
    return bool(_DRAWN.search(question) or _MADE_UP.search(question)) and not _WORKED_OUT.search(question)
