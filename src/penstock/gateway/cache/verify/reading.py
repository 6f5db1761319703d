"""What a question says, apart from how it is put: its kind, the words that matter, who does what to whom."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from penstock.gateway.cache.verify.lexicon import (
    ANYBODY,
    DIRECTIONS,
    EMPTY,
    ENGLISH,
    FOREIGN,
    MENTIONS,
    MODALS,
    NEGATIONS,
    ONESELF,
    PAST,
    PREPOSITIONS,
    PRESENT,
    SELF,
    YOU,
)
from penstock.gateway.cache.verify.numbers import joined, number, parted, spell_out
from penstock.gateway.cache.verify.phrases import FREE_ORDER, with_kind, without_frames
from penstock.gateway.cache.verify.synonyms import meaning, shorten

# Kinds that ask for what is good: there "good" and "best" are the same wish.
_WISHES: Final = frozenset({"HOWTO", "WHAT", "WHICH", "WHERE"})
# Kinds in which whose thing it is says no more than who asks.
_ANYBODYS: Final = frozenset({"HOWTO", "POSSIBLE", "SHOULD", "COST", "DURATION", "WHERE"})
_POSSESSIVES: Final = frozenset({"my", "mine", "our", "ours", "your", "yours", "ur"})
_KIND: Final = re.compile(r" ([A-Z]{2,})( O)?(?= )")
_TOKEN: Final = re.compile(r"\w+(?:[.@:\\]\w+)*(?:\+\+|#)?|[,.?!;:]")
_SENTENCE: Final = re.compile(r" [.?!;]+(?= )")
# Where a question begins that something is said before.
_LATER: Final = re.compile(
    r" [,:](?= (?:what|which|how|why|when|where|who|is|are|do|does|did|can|could|should|will|would) )"
    r"|(?= (?:what|which|how|why|where) (?:is|are|was|were|do|does|did|can|could|should|will|would|to) )"
)
_QUOTED: Final = re.compile(r"[\"“”«»]([^\"“”«»]{1,200})[\"“”«»]|(?<!\w)'([^']{1,200})'(?!\w)")
_CAPITALS: Final = re.compile(r"\b[A-Z]{2,6}\b")
# The letter, and not the article: in capitals inside a sentence, or with nothing behind it to be one of.
_LETTER_A: Final = re.compile(
    r"(?<=[a-z,] )A\b(?! [A-Z][a-z])"
    r"|\b[Aa]\b(?=\s*(?:$|[?.!,;:)]| (?:to|and|or|in|on|at|from|is|of|for|vs)\b))"
)
_CONTRACTIONS: Final = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\b(?:can't|cannot|cant)\b", "can not"),
        (r"\bwon't\b", "will not"),
        (r"\b(do|does|did|is|are|was|were|has|have|had|would|should|could)n'?t\b", r"\1 not"),
        (r"n't\b", " not"),
        (r"\b(what|who|where|how|when|why|that|there|he|she)'?s\b", r"\1 is"),
        (r"\bit's\b", "it is"),
        (r"\bi'?m\b", "i am"),
        (r"'re\b", " are"),
        (r"'ve\b", " have"),
        (r"'ll\b", " will"),
        (r"'d\b", " would"),
        (r"(\w)'s\b|(\ws)'(?!\w)", r"\1\2 s"),  # whose it is stands before it
        (r"\bvs\.", "vs"),
        (r"\bww ?(?=\d)", "world war "),
        (r"\b([a-z]{4,})(\d{1,4})\b", r"\1 \2"),  # iphone6
        (r"(?<=[a-z])/(?=[a-z])", " or "),
        (r"(?<=\w)-(?=\w)", " "),
        (r"&", " and "),
    )
)


@dataclass(slots=True)
class Reading:
    """One text, read once. Words are in lower case; a word in `content` stands for its whole group."""

    folded: str  # the text, but for case, blanks and the mark at its end
    english: bool
    words: frozenset[str]  # all, as they are written
    quotes: tuple[str, ...]
    mention: bool  # it speaks of words
    kinds: set[str] = field(default_factory=set)
    free: bool = True  # whether a part of it may stand elsewhere
    persons: list[str] = field(default_factory=list)  # "self", "you", in order, each once
    modals: set[str] = field(default_factory=set)  # "past" and "present" among them
    numbers: list[str] = field(default_factory=list)
    negations: int = 0
    content: list[str] = field(default_factory=list)  # in order
    plain: list[str] = field(default_factory=list)  # the same as it is written, numbers aside
    before: list[frozenset[str]] = field(default_factory=list)  # the empty words right before each of content
    directions: set[tuple[str, str]] = field(default_factory=set)  # from, to
    names: set[str] = field(default_factory=set)  # those of content that are names
    written: frozenset[str] = frozenset()  # the same with their endings


def fold(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(" .?!")


@lru_cache(maxsize=4096)
def read(text: str) -> Reading:
    """The text must be short; whoever gets the reading must not change it."""
    flat = unicodedata.normalize("NFKC", text).replace("’", "'").replace("‘", "'").replace("`", "'")
    marked = _capitals(spell_out(flat))
    names = _names(marked)
    lowered = parted(marked.lower())
    for pattern, replacement in _CONTRACTIONS:
        lowered = pattern.sub(replacement, lowered)
    spaced = f" {' '.join(_TOKEN.findall(lowered))} "
    words = frozenset(spaced.split())
    quotes = tuple(fold(first or second) for first, second in _QUOTED.findall(flat))
    reading = Reading(
        folded=fold(text),
        english=bool(words & ENGLISH) and len(words & FOREIGN) < 2 and _latin(lowered),
        words=words,
        quotes=quotes,
        mention=bool(words & MENTIONS) or bool(quotes),
        written=names,
    )
    for sentence in _SENTENCE.split(spaced):
        _take(reading, f" {sentence.strip()} ", names)
    return reading


def _latin(text: str) -> bool:
    """Whether nearly all letters are plain ones, as in English with a foreign name."""
    strange = sum(1 for letter in text if letter.isalpha() and not letter.isascii())
    return strange * 20 <= len(text)


def _names(text: str) -> frozenset[str]:
    """Words with a capital that do not begin a sentence; none where most have one."""
    found = [word for word in re.findall(r"(?<![.?!] )(?<!^)\b([A-Z]\w*)", text) if word != "I"]
    words = re.findall(r"\b[A-Za-z]\w*", text)
    return frozenset() if len(found) * 2 > len(words) else frozenset(word.lower() for word in found)


def _capitals(text: str) -> str:
    """IT and US are no pronouns: in a text that is not all in capitals they are marked, and so are words."""
    if text.upper() == text:
        return text
    empty = EMPTY | SELF | YOU | NEGATIONS
    marked = _CAPITALS.sub(lambda match: f"{match[0]}_" if match[0].lower() in empty else match[0], text)
    return re.sub(r"\bUS_", "USA", _LETTER_A.sub("A_", marked))


def _take(reading: Reading, sentence: str, names: frozenset[str]) -> None:
    """Add what one sentence says."""
    said = ""
    asked = with_kind(without_frames(sentence))
    match = _KIND.match(asked)
    if match is None and (later := _LATER.search(asked)):
        said, asked = asked[: later.start()], with_kind(asked[later.end() :])
        match = _KIND.match(asked)
    kind = match[1] if match else ""
    if match:
        reading.kinds.add("WHAT" if kind == "WHICH" else kind)
        asked = asked[match.end() :]
    rest = shorten(f" {f'{said} , {asked}'.strip(' ,')} ").split()
    if rest or match:
        reading.free = reading.free and kind in FREE_ORDER and not (match and match[2])
    if kind != "HOWTO":
        reading.modals |= _modals(kind, sentence.split(), rest)
    gap: list[str] = []
    last = ""
    for word, value in _numbered(rest):
        if word in NEGATIONS:
            reading.negations += 1
        if word in ("me", "you") and word == rest[-1] and {"to", "for"} & {*gap[-1:]}:
            value = None  # whose opinion, or for whom: more than who asks
        elif word in ("we", "us") and kind not in _ANYBODYS | _WISHES:
            word = "people"
        elif word in SELF or word in YOU:
            if kind not in _ANYBODYS and (kind not in _WISHES or word in _POSSESSIVES):
                person = "self" if word in SELF else "you"
                reading.persons += [person] if person not in reading.persons else []
            continue
        if value is None and _is_empty(word, rest, gap, last, asked=bool(match) and not said):
            gap.append(word)
            continue
        token = value or _token(word, wish=kind in _WISHES and not last)
        if value is not None:
            reading.numbers.append(value)
        reading.content.append(token)
        reading.plain.append(value or word)
        reading.before.append(frozenset(gap if last else (*gap, ".")))
        if word in names:
            reading.names.add(token)
        if last:
            reading.directions |= {
                (last, token) if forwards else (token, last)
                for join, forwards in DIRECTIONS.items()
                if join in gap
            }
        gap, last = [], token


def _modals(kind: str, sentence: list[str], rest: list[str]) -> set[str]:
    """How things are said to be; where advice is asked for, "should I" says no more than "can I"."""
    found = {name for name, verbs in (("past", PAST), ("present", PRESENT)) if verbs & {*sentence}}
    for words in (sentence, rest):
        for place, word in enumerate(words):
            following = words[place + 1 : place + 2]
            beside = {*words[max(0, place - 1) : place], *following}
            advice = kind in _WISHES and MODALS.get(word) == "should" and beside & ANYBODY
            polite = kind in _WISHES and word == "would" and following == ["be"]
            if word in MODALS and not advice and not polite:
                found.add(MODALS[word])
    # That something can be is asked by the question's kind, and otherwise says little.
    return found - {"can"} - ({"will"} if kind == "HAPPEN" else set())


def _numbered(words: list[str]) -> Iterator[tuple[str, str | None]]:
    """Each word with its value if it is a number; two that make one number come as one."""
    place = 0
    while place < len(words):
        word = words[place]
        value = None if word == "one" else number(word)
        if place + 1 < len(words) and (pair := joined(word, words[place + 1])):
            value = pair
            place += 1
        yield word, value
        place += 1


def _is_empty(word: str, rest: list[str], gap: list[str], last: str, *, asked: bool) -> bool:
    """At its edges a question has no empty words: what is *in* it, what it is *for*, what it can *do*."""
    if word in PREPOSITIONS and rest[-1] == word and last and not gap:
        return False
    if word in PREPOSITIONS and asked and rest[0] == word and not last and not gap:
        return False
    if word in ("do", "does", "did") and rest[-1] == word:
        return False
    return word in EMPTY or word in ("one", "must")


def _token(word: str, *, wish: bool) -> str:
    if word in ONESELF:
        return "oneself"
    if word in ("this", "these", "those"):
        return "this"
    if not word.isalpha():
        return word
    token = meaning(word)
    return word if token == "best" and not wish else token
