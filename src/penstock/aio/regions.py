"""The kind of a query, by rules: a name that means the same under every trained model.

Quality is watched by region, so a name must never move when a model is retrained. There are at most forty.
"""

from __future__ import annotations

from penstock.aio.features import Reading, read
from penstock.aio.lexicon import CODE_WORDS, CREATE, DOMAIN_NAMES, FUNCTION_WORDS
from penstock.aio.query import Query

_SCRIPTS = (
    ("script/cjk", "⺀", "鿿"),
    ("script/kana", "぀", "ヿ"),
    ("script/hangul", "가", "힣"),
    ("script/cyrillic", "Ѐ", "ӿ"),
    ("script/arabic", "؀", "ۿ"),
    ("script/indic", "ऀ", "෿"),
)
_CODE_MARKS = (
    "```",
    "def ",
    "#include",
    "public static",
    "function(",
    "</",
    "=> ",
    "SELECT ",
    "import ",
    "();",
)
_MATHS_MARKS = ("\\frac", "\\sqrt", "\\int", "\\sum", "$x", "x^", "\\left", "\\cdot", "\\boxed")
_THRESHOLD = 1.5  # words of a field before a query counts as of that field
REGIONS: tuple[str, ...] = (
    "empty", "media", "tools", "code/write", "code/read", "maths/formula", "maths/story", "write", "chat",
    "general", "foreign", *(name for name, _, _ in _SCRIPTS),
    *(name for name in DOMAIN_NAMES if name != "shopping"),
)  # fmt: skip


def region(query: Query) -> str:
    """The region of a query, one of `REGIONS`."""
    return region_of(query, read(query))


def region_of(query: Query, reading: Reading) -> str:
    ask, words = query.ask, reading.words
    if query.media:
        return "media"
    if not ask:
        return "empty"
    if query.tools:
        return "tools"
    if not ask.isascii() and (script := _script(ask)):
        return script
    distinct = set(words)
    if sum(mark in ask for mark in _CODE_MARKS) >= 2 or "```" in ask:
        return "code/write" if distinct & CREATE else "code/read"
    creates = any(word in CREATE for word in words[:3])
    if creates and distinct & CODE_WORDS:
        return "code/write"
    if any(mark in ask for mark in _MATHS_MARKS):
        return "maths/formula"
    if not reading.options and _counts(words) and ("how many" in ask.lower() or "how much" in ask.lower()):
        return "maths/story"
    if _foreign(words, distinct):
        return "foreign"
    if creates and not reading.options:
        return "write"
    best = max(range(len(reading.domains)), key=lambda number: reading.domains[number])
    name = DOMAIN_NAMES[best]
    if reading.domains[best] >= _THRESHOLD:
        return "maths/story" if name == "shopping" else name
    return "chat" if len(words) <= 12 and "?" not in ask and not reading.options else "general"


def _counts(words: list[str]) -> bool:
    return sum(word[0].isdigit() for word in words) >= 2


def _script(ask: str) -> str | None:
    for name, first, last in reversed(_SCRIPTS):
        if sum(first <= character <= last for character in ask[:400]) > 0.2 * len(ask[:400]):
            return name
    return None


def _foreign(words: list[str], distinct: set[str]) -> bool:
    """More function words of another language than of English."""
    if len(words) < 3:
        return False
    hits = {name: len(distinct & common) for name, common in FUNCTION_WORDS.items()}
    return max(hits.values()) > hits["en"] + 1
