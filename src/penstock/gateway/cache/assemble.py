"""From the events of a finished stream to the whole answer that it was. Pure.

Only what is known is put together: a stream with anything else in it makes no answer, and is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

_DONE: Final = b"[DONE]"
_HEAD: Final = frozenset({"id", "object", "created", "model", "choices", "usage"})
_TEXTS: Final = frozenset({"content", "reasoning_content", "reasoning", "refusal"})
_OBJECTS: Final = {"createChatCompletion": "chat.completion", "createCompletion": "text_completion"}


class _OddError(Exception):
    """The stream has something in it that is not known here."""


def payloads(events: bytes) -> Iterator[bytes]:
    """The data of each event; comments are none."""
    for event in events.split(b"\n\n"):
        lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
        if lines:
            yield b"\n".join(lines)


def assembled(operation: str, events: bytes) -> dict[str, Any] | None:
    """The whole answer of a stream of chat or text completions; None if it makes none."""
    try:
        return _assembled(operation, payloads(events))
    except (_OddError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _assembled(operation: str, data: Iterable[bytes]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    usage: Any = None
    done = False
    for payload in data:
        if payload == _DONE:
            done = True
            continue
        chunk = _object(msgspec.json.decode(payload))
        if done or "error" in chunk:
            raise _OddError
        for name, value in chunk.items():
            if name not in _HEAD or name in ("id", "created", "model"):
                answer.setdefault(name, value)
        usage = chunk.get("usage") or usage
        for part in chunk.get("choices") or ():
            _take(choices, _object(part))
    if not done:
        raise _OddError
    answer["object"] = _OBJECTS[operation]
    answer["choices"] = [choices[index] for index in sorted(choices)]
    if usage is not None:
        answer["usage"] = usage
    return answer


def _take(choices: dict[int, dict[str, Any]], part: dict[str, Any]) -> None:
    index = part.get("index", 0)
    if not isinstance(index, int):
        raise _OddError
    known = choices.get(index)
    if known is None:
        known = choices[index] = {"index": index}
        if "delta" in part:
            known["message"] = {"role": "assistant", "content": None}
        else:
            known["text"] = ""
        known["logprobs"] = None
        known["finish_reason"] = None
    for name, value in part.items():
        if name == "delta":
            _merge_delta(known["message"] if "message" in known else _odd(), _object(value or {}))
        elif name == "text":
            known["text"] = known["text"] + value if "text" in known and isinstance(value, str) else _odd()
        elif name == "logprobs":
            if value is not None:
                known["logprobs"] = _merge_lists(known["logprobs"], _object(value))
        elif name != "index" and value is not None:
            known[name] = value


def _merge_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if value is None:
            continue
        if name == "role":
            message["role"] = value
        elif name in _TEXTS:
            if not isinstance(value, str):
                raise _OddError
            message[name] = (message.get(name) or "") + value
        elif name == "tool_calls":
            _merge_calls(message.setdefault("tool_calls", []), value)
        elif name == "function_call":
            _merge_function(message.setdefault("function_call", {}), _object(value))
        else:
            raise _OddError


def _merge_calls(calls: list[Any], parts: Any) -> None:
    if not isinstance(parts, list):
        raise _OddError
    for part in map(_object, parts):
        at = part.get("index", len(calls))
        if not isinstance(at, int) or not 0 <= at <= len(calls):
            raise _OddError
        if at == len(calls):
            calls.append({})
        call = calls[at]
        for name, value in part.items():
            if name == "function":
                _merge_function(call.setdefault("function", {}), _object(value))
            elif name != "index" and value is not None:
                call[name] = value


def _merge_function(function: dict[str, Any], part: dict[str, Any]) -> None:
    for name, value in part.items():
        if value is None:
            continue
        if not isinstance(value, str):
            raise _OddError
        if name == "arguments":
            function[name] = function.get(name, "") + value
        elif value:
            function[name] = value


def _merge_lists(known: dict[str, Any] | None, part: dict[str, Any]) -> dict[str, Any]:
    """Scores: lists that grow by what is new."""
    merged = dict(known or {})
    for name, value in part.items():
        if isinstance(value, list):
            merged[name] = [*(merged.get(name) or []), *value]
        else:
            merged.setdefault(name, value)
    return merged


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else _odd()


def _odd() -> Any:
    raise _OddError
