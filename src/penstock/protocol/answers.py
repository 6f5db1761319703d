"""What an unstreamed answer says, whichever operation it belongs to: its text, and whether it was cut off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

_anything: Final = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Said:
    text: str
    cut: bool = False  # it stopped at its limit of tokens
    calls: str = ""  # tool calls, as JSON; an answer may be nothing else


def said(operation: str, body: bytes) -> Said | None:
    """The first choice of an answer; None where there is none, or it is not what the operation answers."""
    try:
        answer = _anything.decode(body)
    except msgspec.MsgspecError:
        return None
    read = _READERS.get(operation)
    if read is None or not isinstance(answer, Mapping):
        return None
    try:
        return read(answer)
    except (KeyError, IndexError, TypeError, AttributeError):
        return None


def _chat(answer: Mapping[str, Any]) -> Said:
    choice = answer["choices"][0]
    message = choice["message"]
    calls = message.get("tool_calls")
    return Said(
        message.get("content") or message.get("refusal") or "",
        choice.get("finish_reason") == "length",
        _called([call["function"] for call in calls]) if calls else "",
    )


def _completion(answer: Mapping[str, Any]) -> Said:
    choice = answer["choices"][0]
    return Said(choice["text"], choice.get("finish_reason") == "length")


def _response(answer: Mapping[str, Any]) -> Said:
    parts = [part for item in answer["output"] if item.get("type") == "message" for part in item["content"]]
    calls = [item for item in answer["output"] if item.get("type") == "function_call"]
    text = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    return Said(text, answer.get("status") == "incomplete", _called(calls) if calls else "")


def _message(answer: Mapping[str, Any]) -> Said:
    calls = [block for block in answer["content"] if block["type"] == "tool_use"]
    text = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    return Said(text, answer.get("stop_reason") == "max_tokens", _called(calls) if calls else "")


def _called(calls: list[Mapping[str, Any]]) -> str:
    """Names and arguments alone: ids differ from answer to answer."""
    return msgspec.json.encode(
        [
            {"name": call["name"], "arguments": _arguments(call.get("arguments", call.get("input")))}
            for call in calls
        ]
    ).decode()


def _arguments(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return _anything.decode(given)
    except msgspec.MsgspecError:
        return given


_READERS: Final = {
    "createChatCompletion": _chat,
    "createCompletion": _completion,
    "createResponse": _response,
    "createMessage": _message,
}
