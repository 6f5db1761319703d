"""What can be seen to be wrong with an answer, without knowing the right one.

Each check is a plain function of what was wanted and what was heard; it names what it found, or says nothing.
`WEIGHTS` say how much that counts, in log-odds of a good answer. Where outcomes were measured, the weight is
what they say; the others are set so that the finding alone is decisive or not, as the comment has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from penstock.aio.cascade.heard import Heard
from penstock.aio.cascade.loops import loops
from penstock.aio.cascade.wants import Wants, names
from penstock.aio.judges.choice import chosen, options
from penstock.aio.refusal import refuses

WEIGHTS: Final[dict[str, float]] = {
    # Of no use to the client whatever they say: decisive alone.
    "empty": -8.0,
    "not the JSON that was asked for": -8.0,
    "required keys are missing": -5.0,
    "a value has another type than the schema says": -5.0,
    "a tool call is not valid": -8.0,
    "no tool was called": -6.0,
    "refusal": -5.0,
    "repeats itself": -5.0,
    # MATH: of answers without a final answer 0 of 713 were right (all models of zeroeval_math-l5).
    "no choice": -5.0,
    "cut off": -3.0,
    # Doubtful, not decisive: what is meant may be there.
    "a code block is not closed": -1.0,
    "very short for what was asked": -1.3,
    # MMLU-Pro, three lower tiers: answers over 2 and 4 times a model's median length are right less often by
    # 0.8 to 1.4, and by 1.7 to 1.8, in log-odds.
    "longer than usual": -1.0,
    "far longer than usual": -1.8,
}

_FENCE: Final = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_WORDS: Final = re.compile(r"\w+")
_SHORT: Final = 3  # words
_SHORT_CHARACTERS: Final = 80  # longer than any two words
# Scripts without spaces: a character is about half a word.
_DENSE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def _empty(wants: Wants, heard: Heard) -> str | None:
    return "empty" if heard.whole and not heard.text.strip() and not heard.tools else None


def _refusal(wants: Wants, heard: Heard) -> str | None:
    return "refusal" if heard.refused or (not heard.tools and refuses(heard.text)) else None


def _loop(wants: Wants, heard: Heard) -> str | None:
    return "repeats itself" if not wants.repetition and loops(heard.text) else None


def _json(wants: Wants, heard: Heard) -> str | None:
    text = heard.text.strip()
    if not wants.json or heard.tools or not text:
        return None
    if not heard.whole:  # a beginning can be seen to be none
        return None if text[0] in _openings(wants.schema) else "not the JSON that was asked for"
    content = _decoded(text)
    if content is _NOT_JSON or (not wants.schema and not isinstance(content, dict)):
        return "not the JSON that was asked for"
    return _against(wants.schema, content)


def _openings(schema: Mapping[str, Any]) -> str:
    """What JSON of such a schema can begin with."""
    kind = schema.get("type", "object")
    return {"object": "{", "array": "["}.get(kind, '{["-0123456789tfn') if isinstance(kind, str) else '{["'


def _against(schema: Mapping[str, Any], content: Any) -> str | None:
    """Whether the top level is as the schema says; what is deeper is left to whoever reads it."""
    if not isinstance(content, dict):
        return None if schema.get("type", "object") != "object" else "not the JSON that was asked for"
    if any(name not in content for name in names(schema.get("required"))):
        return "required keys are missing"
    properties = schema.get("properties")
    for name, each in properties.items() if isinstance(properties, Mapping) else ():
        kind = each.get("type") if isinstance(each, Mapping) else None
        if name in content and isinstance(kind, str) and kind in _TYPES and not _is(content[name], kind):
            return "a value has another type than the schema says"
    return None


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _tools(wants: Wants, heard: Heard) -> str | None:
    if not heard.whole:
        return None
    if wants.must_call and not heard.tools:
        return "no tool was called"
    for call in heard.tools:
        arguments = _decoded(call.arguments or "{}")
        tool = wants.tools.get(call.name)
        if not call.name or not isinstance(arguments, dict) or (wants.tools and tool is None):
            return "a tool call is not valid"
        if tool is not None and any(name not in arguments for name in tool.required):
            return "a tool call is not valid"
    return None


def _choice(wants: Wants, heard: Heard) -> str | None:
    if not heard.whole or wants.json or heard.tools or not options(wants.ask):
        return None
    return "no choice" if chosen(wants.ask, heard.text) is None else None


def _fences(wants: Wants, heard: Heard) -> str | None:
    unclosed = heard.whole and len(_FENCE.findall(heard.text)) % 2
    return "a code block is not closed" if unclosed else None


def _short(wants: Wants, heard: Heard) -> str | None:
    text = heard.text.strip()
    if not heard.whole or wants.json or heard.tools or not 0 < len(text) < _SHORT_CHARACTERS:
        return None
    words = len(_WORDS.findall(text)) + len(_DENSE.findall(text)) // 2
    return "very short for what was asked" if words < _SHORT and wants.long else None


_NOT_JSON: Final = object()


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _NOT_JSON


Check = Callable[[Wants, Heard], str | None]

CHECKS: Final[tuple[Check, ...]] = (_empty, _refusal, _loop)
# Of form: an answer that its client's own limit has cut cannot be blamed for these.
FORM_CHECKS: Final[tuple[Check, ...]] = (_json, _tools, _choice, _fences, _short)


def findings(wants: Wants, heard: Heard, tokens: int, usual: float | None = None) -> list[str]:
    """What is wrong, by the names of WEIGHTS. `tokens`: of the answer; `usual`: what such an answer has."""
    cut = heard.whole and heard.ending == "length"
    # A longer answer was not wanted: another model would be cut off just there.
    limited = cut and wants.max_tokens is not None and tokens >= wants.max_tokens
    checks = CHECKS if limited else CHECKS + FORM_CHECKS
    found = [name for check in checks if (name := check(wants, heard)) is not None]
    if cut and not limited:
        found.append("cut off")
    if usual is not None and not limited and tokens > 2 * usual:
        found.append("far longer than usual" if tokens > 4 * usual else "longer than usual")
    return found
