"""JSON: do both answers hold the same values, whatever their order and spacing?"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from penstock.aio.judges.verdict import Embed, Pair, Verdict

NAME: Final = "same json"
_FENCE: Final = re.compile(r"^```(?:json)?\s*\n(.*?)\n?```$", re.DOTALL | re.IGNORECASE)
_INSIDE: Final = re.compile(r"```json\s*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_DEPTH: Final = 64
_WANTED: Final = re.compile(r"\bjson\b", re.IGNORECASE)
_ABSENT: Final = object()


def document(answer: str) -> Any:
    """The object or list that an answer is, or that its one `json` fence holds; `no_document` if none."""
    text = answer.strip()
    match = _FENCE.match(text)
    fences = _INSIDE.findall(text)
    inside = match[1] if match else fences[0] if len(fences) == 1 else text
    inside = inside.strip()
    if not inside.startswith(("{", "[")):
        return _ABSENT
    try:
        return json.loads(inside)
    except (ValueError, RecursionError):
        return _ABSENT


def is_document(value: Any) -> bool:
    return value is not _ABSENT


def wants_json(question: str) -> bool:
    return bool(_WANTED.search(question))


def judge_json(pair: Pair, embed: Embed | None) -> Verdict:
    low, expert = document(pair.low), document(pair.expert)
    if not is_document(low) and not is_document(expert):
        return Verdict(0.5, "unclear", NAME, "json")
    if not is_document(low):
        return Verdict(0.03, "expert_better", NAME, "json")
    if not is_document(expert):
        return Verdict(0.95, "low_better", NAME, "json")
    alike, parts = _alike(low, expert, 0)
    share = alike / parts if parts else 1.0
    if share == 1.0:
        return Verdict(0.97, "same", NAME, "json")
    return Verdict(round(0.6 * share**2, 4), "expert_better", NAME, "json")


def _alike(a: Any, b: Any, depth: int) -> tuple[float, int]:
    """How many of the leaves of two documents agree, and how many there are."""
    if depth > _DEPTH:
        return float(a == b), 1
    if isinstance(a, dict) and isinstance(b, dict):
        parts = [_alike(a.get(key, _ABSENT), b.get(key, _ABSENT), depth + 1) for key in {**a, **b}]
    elif isinstance(a, list) and isinstance(b, list):
        longest = max(len(a), len(b))
        padded = [(list(items) + [_ABSENT] * longest)[:longest] for items in (a, b)]
        parts = [_alike(first, second, depth + 1) for first, second in zip(*padded, strict=True)]
    else:
        return float(_same_leaf(a, b)), 1
    return (sum(part[0] for part in parts), sum(part[1] for part in parts)) if parts else (1.0, 1)


def _same_leaf(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(a, str) and isinstance(b, str):
        return " ".join(a.split()).casefold() == " ".join(b.split()).casefold()
    return bool(a == b) and a is not _ABSENT
