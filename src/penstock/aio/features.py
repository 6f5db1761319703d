"""What can be measured of a query without a trained model: dense features, each with a name.

They are all a router has on a subject it has never seen. Every one is bounded or on a logarithmic scale,
so that no query, however long or strange, lies far outside what was trained on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import log1p

import numpy as np
from numpy.typing import NDArray

from penstock.aio.lexicon import (
    CHAT,
    COMPARISONS,
    CREATE,
    DOMAIN_NAMES,
    DOMAINS_OF,
    FUNCTION_WORDS,
    HEDGES,
    NEGATIONS,
    NUMBER_WORDS,
    QUESTION_WORDS,
    REASONING,
)
from penstock.aio.query import Query

_WORD = re.compile(r"[^\W\d_]+(?:'[a-z]+)?|\d+(?:[.,]\d+)*")
_OPTION = re.compile(r"^[ \t]{0,4}\(?([A-P])[.):][ \t]", re.MULTILINE)
_CODE = re.compile(
    r"```|\bdef \w+\(|\breturn\b.*[;\n]|[;{}]\s*$|\bclass \w+[:({]|#include|\bSELECT\b|=>|==|\bimport \w",
    re.MULTILINE,
)
# One of these stands in whatever `_CODE` finds; looking for them first is quicker.
_CODE_MARKS = ("```", "def ", "return", ";", "{", "}", "class ", "#include", "SELECT", "=>", "==", "import ")
_LATEX = re.compile(
    r"\$[^$\n]{1,200}\$|\\(?:frac|sqrt|int|sum|left|begin|text|cdot|boxed|alpha|beta|pi|theta)\b|\\[\[(]"
)
_FORMULA = re.compile(r"[=+*/^<>≤≥±√∫∑×÷°]|\d\s*[-]\s*\d")
_STRANGE = re.compile(r"[^\x00-\x7f]")
_WIDE = re.compile("[⺀-\U0010ffff]")
_SENTENCE = re.compile(r"[.!?]+(?:\s|$)")
_CAPITAL = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
_UNIT = re.compile(
    r"\d\s?(?:kg|km|cm|mm|m/s|ft|in|lb|lbs|psi|hz|khz|mhz|kj|kw|mw|ev|mol|ml|atm|°|ohms?|volts?|amps?|watts?|f|c|k|j|n|v|w|m|g|s)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """A query's question in lower-case words, and its parts if it is a choice: read once for all scoring."""

    words: list[str]
    stem: str
    options: list[str]
    domains: list[float]  # words of each field, a word of several fields divided among them


def read(query: Query) -> Reading:
    ask = query.ask
    stem, options = _choice(ask)
    words = _WORD.findall(ask.lower())
    domains = [0.0] * len(DOMAIN_NAMES)
    for word in words:
        numbers = DOMAINS_OF.get(word)
        if numbers is not None:
            for number in numbers:
                domains[number] += 1 / len(numbers)
    return Reading(words, stem, options, domains)


def _choice(ask: str) -> tuple[str, list[str]]:
    """The stem and the options of a multiple-choice question; no options where it is none."""
    marks = list(_OPTION.finditer(ask))
    starts = [number for number, mark in enumerate(marks) if mark.group(1) == "A"]
    if not starts or len(marks) - starts[-1] < 2:
        return ask, []
    marks = marks[starts[-1] :]
    ends = [mark.start() for mark in marks[1:]] + [len(ask)]
    return ask[: marks[0].start()], [
        ask[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)
    ]


_SHAPE: tuple[str, ...] = (
    "log_chars", "log_words", "log_stem_words", "log_context_chars", "log_system_chars", "log_prompt_tokens",
    "log_turns", "has_tools", "wants_json", "has_media", "empty",
)  # fmt: skip
_PROSE: tuple[str, ...] = (
    "log_sentences", "words_per_sentence", "word_length", "long_words", "distinct_words", "log_entities",
    "questions", "which_of_following", "blank", "ends_open", "negation", "shouted_negation", "reasoning",
    "ifs", "comparisons", "hedges", "creates", "chats",
)  # fmt: skip
_FIGURES: tuple[str, ...] = (
    "log_numbers", "log_stem_numbers", "log_largest", "decimals", "fractions", "percent", "money", "units",
    "number_words", "formulas", "latex", "code", "quotes",
)  # fmt: skip
_CHOICE: tuple[str, ...] = (
    "is_choice", "options", "log_option_words", "option_spread", "options_numeric", "options_overlap",
    "all_of_above", "statements", "options_share",
)  # fmt: skip
_TONGUE: tuple[str, ...] = ("english", "foreign_letters", "wide_letters")
FEATURES: tuple[str, ...] = (
    *_SHAPE,
    *_PROSE,
    *(f"asks_{word}" for word in QUESTION_WORDS),
    *_FIGURES,
    *_CHOICE,
    *_TONGUE,
    *(f"about_{name}" for name in DOMAIN_NAMES),
)


def features(query: Query) -> NDArray[np.float32]:
    """The dense features of a query, in the order of `FEATURES`."""
    return features_of(query, read(query))


def features_of(query: Query, reading: Reading) -> NDArray[np.float32]:
    values = [
        *_shape(query, reading),
        *_prose(query.ask, reading),
        *_asks(reading),
        *_figures(query.ask, reading),
        *_choices(reading, query.ask),
        *_tongue(query.ask, reading),
    ]
    total = len(reading.words) + 8.0
    values += [count / total * 4 for count in reading.domains]
    return np.array(values, dtype=np.float32)


def _count(words: list[str], chosen: frozenset[str]) -> int:
    return sum(map(chosen.__contains__, words))


def _shape(query: Query, reading: Reading) -> list[float]:
    stem = reading.stem.count(" ") + 1
    return [
        log1p(len(query.ask)) / 4,
        log1p(len(reading.words)) / 4,
        log1p(stem) / 4,
        log1p(len(query.context)) / 4,
        log1p(len(query.system)) / 4,
        log1p(min(query.prompt_tokens, 1_000_000)) / 4,
        log1p(min(query.turns, 1000)),
        float(query.tools > 0),
        float(query.schema),
        float(query.media),
        float(not query.ask),
    ]


def _prose(ask: str, reading: Reading) -> list[float]:
    words = reading.words
    number = len(words) or 1
    distinct = set(words)
    letters = sum(map(len, words))
    sentences = len(_SENTENCE.findall(reading.stem)) or 1
    stem = reading.stem.rstrip()
    lower = reading.stem[-400:].lower()
    counts = [_count(words, chosen) for chosen in (REASONING, COMPARISONS, HEDGES, CHAT)]
    return [
        log1p(sentences),
        min((reading.stem.count(" ") + 1) / sentences, 60) / 20,
        min(letters / number, 15) / 5,
        sum(map((9).__le__, map(len, words))) / number * 2,
        len(distinct) / number,
        log1p(len(_CAPITAL.findall(ask))) / 2,
        min(ask.count("?"), 3) / 2,
        float("of the following" in lower or "of these" in lower),
        float("__" in ask or " _ " in ask),
        float(bool(reading.options) and not stem.endswith(("?", ".", ":"))),
        min(len(distinct & NEGATIONS), 4) / 2,
        float(any(word in reading.stem for word in (" NOT ", " EXCEPT", " LEAST", " INCORRECT", " except"))),
        min(counts[0] / number, 0.3) * 4,
        min(words.count("if") + words.count("unless") + words.count("suppose"), 4) / 2,
        min(counts[1] / number, 0.3) * 4,
        min(counts[2], 4) / 2,
        float(bool(words) and any(word in CREATE for word in words[:4])),
        min(counts[3] / number, 0.3) * 4,
    ]


def _asks(reading: Reading) -> list[float]:
    """Which question word the stem asks with: the last sentence's, where it has one."""
    tail = reading.stem[-250:].lower()
    places = [tail.rfind(word) for word in QUESTION_WORDS]
    last = max(places)
    return [float(place >= 0 and place == last) for place in places]


def _figures(ask: str, reading: Reading) -> list[float]:
    numbers = [word for word in reading.words if word[0].isdigit()]
    largest = max((len(number.split(".")[0].replace(",", "")) for number in numbers), default=0)
    stem_numbers = len(re.findall(r"\d+(?:[.,]\d+)*", reading.stem))
    return [
        log1p(len(numbers)) / 2,
        log1p(stem_numbers) / 2,
        min(largest, 9) / 4,
        log1p(sum("." in number for number in numbers)),
        log1p(len(re.findall(r"\d\s?/\s?\d", ask))),
        log1p(ask.count("%")),
        log1p(ask.count("$")) if "\\" not in ask else 0.0,
        log1p(len(_UNIT.findall(ask))) if numbers else 0.0,
        log1p(_count(reading.words, NUMBER_WORDS)),
        log1p(len(_FORMULA.findall(ask))) / 2,
        log1p(len(_LATEX.findall(ask))) / 2 if "$" in ask or "\\" in ask else 0.0,
        log1p(len(_CODE.findall(ask))) if any(mark in ask for mark in _CODE_MARKS) else 0.0,
        log1p(ask.count('"') + ask.count("“")) / 2,
    ]


def _choices(reading: Reading, ask: str) -> list[float]:
    options = reading.options
    if not options:
        return [0.0] * len(_CHOICE)
    lengths = [option.count(" ") + 1 for option in options]
    mean = sum(lengths) / len(lengths)
    sets = [set(option.lower().split()) for option in options]
    common = set.intersection(*sets)
    union = set.union(*sets)
    joined = " ".join(options[-3:]).lower()
    numeric = sum(any(map(str.isdigit, option)) for option in options)
    return [
        1.0,
        min(len(options), 16) / 8,
        log1p(mean) / 2,
        (max(lengths) - min(lengths)) / (max(lengths) + 1),
        numeric / len(options),
        len(common) / (len(union) or 1) * 2,
        float("the above" in joined or "none of" in joined or "both " in joined),
        float(
            "statement 1" in ask.lower()
            or " i and ii" in ask.lower()
            or "i only" in joined
            or "true, " in joined
        ),
        sum(map(len, options)) / (len(ask) + 1),
    ]


def _tongue(ask: str, reading: Reading) -> list[float]:
    words = reading.words
    number = len(words) or 1
    english = FUNCTION_WORDS["en"]
    ascii_only = ask.isascii()
    foreign = 0 if ascii_only else sum(map(str.isalpha, _STRANGE.findall(ask)))
    wide = 0 if ascii_only else len(_WIDE.findall(ask))
    return [
        min(_count(words, english) / number, 0.5) * 2,
        min(foreign / (len(ask) + 1) * 2, 1.0),
        min(wide / (len(ask) + 1) * 2, 1.0),
    ]
