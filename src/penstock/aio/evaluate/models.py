"""What models of measured data are called here, and what an answer of theirs costs.

The same model is spelled differently in every file; `canonical` gives it one name. Costs are in billions of
parameters, which is what an answer costs to compute; where the maker does not say how large a model is, a
stand-in that keeps the order of list prices takes its place (marked below).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """A model whose plain name does not say its size, or whose spelling we keep."""

    name: str
    cost: float


# Sizes that names do not tell. gpt-4, gpt-4o-mini, o1-mini, claude and gemini are stand-ins, not facts.
KNOWN: dict[str, Known] = {
    "phi-3-mini": Known("Phi-3-mini", 3.8),
    "phi-3.5-mini": Known("Phi-3.5-mini", 3.8),
    "llama-3-8b": Known("Llama-3-8B", 8.0),
    "llama-3-70b": Known("Llama-3-70B", 70.0),
    "llama-3.1-8b": Known("Llama-3.1-8B", 8.0),
    "llama-3.1-70b": Known("Llama-3.1-70B", 70.0),
    "llama-3.1-405b": Known("Llama-3.1-405B", 405.0),
    "mixtral-8x7b": Known("mixtral-8x7b", 46.7),
    "gemini-1.5-flash": Known("gemini-1.5-flash", 32.0),
    "gemini-1.5-pro": Known("gemini-1.5-pro", 140.0),
    "gpt-4o-mini": Known("gpt-4o-mini", 32.0),
    "gpt-4-1106": Known("gpt-4-1106", 560.0),
    "o1-mini": Known("o1-mini", 280.0),
    "claude-3-5-sonnet": Known("claude-3-5-sonnet", 280.0),
}

# Ladders for files we know, cheapest first: the first one whose models a file all has is its ladder.
LADDERS: tuple[tuple[str, ...], ...] = (
    ("Phi-3-mini", "Llama-3.1-8B", "Llama-3.1-70B", "gemini-1.5-pro"),
    ("Phi-3.5-mini", "Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.1-405B"),
)

_MAKER = re.compile(r"^.*/")
_PROVIDER = re.compile(r"@.*$")
_VERSION = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|00\d|v\d+(?:\.\d+)?)$")
_KIND = re.compile(r"-(?:instruct|inst|chat|it|preview|\d+k)$")
_DOTTED = re.compile(r"(?<=\d)_(?=\d)")
_EXPERTS = re.compile(r"(?<![\w.])(\d+)x(\d+(?:\.\d+)?)b(?![a-z0-9])")
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z0-9])")


def canonical(name: str) -> str:
    """One name for one model: no maker, provider, date, version or `-Instruct`."""
    short = _DOTTED.sub(".", _PROVIDER.sub("", _MAKER.sub("", name.strip())).lower())
    short = short.removeprefix("meta-")
    while True:
        shorter = _KIND.sub("", _VERSION.sub("", short))
        if shorter == short or not shorter:
            break
        short = shorter
    known = KNOWN.get(short)
    return known.name if known is not None else short


def cost_of(name: str) -> float | None:
    """Billions of parameters, as far as the (canonical) name or our table says."""
    known = KNOWN.get(name.lower())
    if known is not None:
        return known.cost
    if experts := _EXPERTS.search(name.lower()):
        return float(experts[1]) * float(experts[2])
    if size := _SIZE.search(name.lower()):
        return float(size[1])
    return None


def ladder_of(models: Sequence[str], cost: Sequence[float], mean: Sequence[float]) -> tuple[int, ...]:
    """Which models (cheapest first) make the tiers: a known ladder, else those no cheaper one outdoes.

    Two models are a ladder as they are. `mean` is the share of good answers in the whole file: it decides
    only which models are compared, never which one gets a query.
    """
    if len(models) <= 2:
        return tuple(range(len(models)))
    for ladder in LADDERS:
        if all(name in models for name in ladder):
            return tuple(models.index(name) for name in ladder)
    chosen: list[int] = []
    for position in range(len(models)):
        if chosen and cost[position] == cost[chosen[-1]] and mean[position] > mean[chosen[-1]]:
            chosen.pop()
        if not chosen or mean[position] > mean[chosen[-1]]:
            chosen.append(position)
    return tuple(chosen)
