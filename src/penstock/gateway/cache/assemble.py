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
    answer["choices"] = [_joined(choices[index]) for index in sorted(choices)]
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
            known["text"] = []
        known["logprobs"] = None
        known["finish_reason"] = None
    if known["finish_reason"] is not None and _goes_on(part, known["finish_reason"]):
        raise _OddError
    for name, value in part.items():
        if name == "delta":
            _merge_delta(known["message"] if "message" in known else _odd(), _object(value or {}))
        elif name == "text":
            _append(known if "text" in known else _odd(), "text", value)
        elif name == "logprobs":
            if value is not None:
                known["logprobs"] = known["logprobs"] or {}
                _extend(known["logprobs"], _object(value))
        elif name != "index" and value is not None:
            known[name] = value


def _goes_on(part: dict[str, Any], reason: Any) -> bool:
    """Whether a choice says more after its end, or ends once more in another way."""
    delta = _object(part.get("delta") or {})
    more = part.get("text") or any(value for name, value in delta.items() if name != "role")
    return bool(more) or part.get("finish_reason") not in (None, reason)


def _merge_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if value is None:
            continue
        if name == "role":
            message["role"] = value
        elif name in _TEXTS:
            _append(message, name, value)
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
        if name == "arguments" and value is not None:
            _append(function, name, value)
        elif value:
            function[name] = value


def _extend(known: dict[str, Any], part: dict[str, Any]) -> None:
    """Scores: lists that grow by what is new."""
    for name, value in part.items():
        if isinstance(value, list) and isinstance(known.get(name), list):
            known[name] += value
        elif value is not None or name not in known:
            known[name] = value


def _append(holder: dict[str, Any], name: str, text: Any) -> None:
    """Texts are lists of their pieces until all have come: to copy them at each would take for ever."""
    if not isinstance(text, str):
        raise _OddError
    if holder.get(name) is None:
        holder[name] = []
    holder[name].append(text)


def _joined(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.get("message") or {}
    functions = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    for holder in (choice, message, message.get("function_call") or {}, *functions):
        for name in ("text", "arguments", *_TEXTS):
            if isinstance(holder.get(name), list):
                holder[name] = "".join(holder[name])
    return choice


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else _odd()


def _odd() -> Any:
    raise _OddError
