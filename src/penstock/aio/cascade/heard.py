"""What an answer says, read from the bytes that a client would get: four wire formats, whole or streamed.

Bytes come from servers that may say anything: what is not understood is left out, and nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from penstock.protocol.sse_reader import EventError, EventReader

Ending = Literal["", "stop", "length", "tool", "filter"]  # "": it has not ended, or nobody said how

_ENDINGS: Final[dict[str, Ending]] = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool",
    "tool_use": "tool",
    "function_call": "tool",
    "content_filter": "filter",
    "refusal": "filter",
}


@dataclass(slots=True)
class ToolCall:
    name: str = ""
    arguments: str = ""  # JSON, as far as it has come


@dataclass(slots=True)
class Heard:
    """One answer, or the beginning of one: its first choice, without its reasoning."""

    text: str = ""
    tools: list[ToolCall] = field(default_factory=list)
    refused: bool = False  # the server itself says that this is a refusal
    ending: Ending = ""
    whole: bool = True  # False: more was to come when it was looked at


def heard_whole(asks: str, body: bytes) -> Heard | None:
    """An unstreamed answer to the operation `asks`; None for an operation whose answers are not read here.

    What is no such answer says nothing, as an empty one does.
    """
    reader = _WHOLE.get(asks)
    return None if reader is None else reader(_mapping(_decoded(body)))


def heard_stream(asks: str, data: bytes, *, ended: bool) -> Heard | None:
    """The events of a stream so far; None for an operation whose answers are not read here."""
    reader = _EVENTS.get(asks)
    if reader is None:
        return None
    heard = Heard(whole=ended)
    try:
        events = EventReader().feed(data)
    except EventError:
        return heard
    texts: list[str] = []
    for event in events:
        content = _decoded(event.data)
        if isinstance(content, Mapping):
            reader(heard, texts, content)
    heard.text = "".join(texts)
    return heard


# ---------------------------------------------------------------- whole answers


def _chat(body: Mapping[str, Any]) -> Heard:
    choice = _first(body.get("choices"))
    message = _mapping(choice.get("message"))
    calls = [_mapping(call.get("function")) for call in _mappings(message.get("tool_calls"))]
    if isinstance(message.get("function_call"), Mapping):
        calls.append(message["function_call"])
    return Heard(
        _text(message.get("content")) + _text(message.get("refusal")),
        [ToolCall(_text(call.get("name")), _text(call.get("arguments"))) for call in calls],
        refused=bool(message.get("refusal")),
        ending=_ending(choice.get("finish_reason")),
    )


def _completion(body: Mapping[str, Any]) -> Heard:
    choice = _first(body.get("choices"))
    return Heard(_text(choice.get("text")), ending=_ending(choice.get("finish_reason")))


def _response(body: Mapping[str, Any]) -> Heard:
    heard = Heard(ending=_response_ending(body))
    for item in _mappings(body.get("output")):
        if item.get("type") == "function_call":
            heard.tools.append(ToolCall(_text(item.get("name")), _text(item.get("arguments"))))
        elif item.get("type") == "message":
            for part in _mappings(item.get("content")):
                heard.text += _text(part.get("text")) + _text(part.get("refusal"))
                heard.refused |= part.get("type") == "refusal"
    return heard


def _message(body: Mapping[str, Any]) -> Heard:
    heard = Heard(ending=_ending(body.get("stop_reason")))
    heard.refused = heard.ending == "filter"
    for block in _mappings(body.get("content")):
        if block.get("type") == "tool_use":
            arguments = msgspec.json.encode(block.get("input")).decode()
            heard.tools.append(ToolCall(_text(block.get("name")), arguments))
        elif block.get("type") == "text":
            heard.text += _text(block.get("text"))
    return heard


_WHOLE: Final[dict[str, Callable[[Mapping[str, Any]], Heard]]] = {
    "createChatCompletion": _chat,
    "createCompletion": _completion,
    "createResponse": _response,
    "createMessage": _message,
}

# ---------------------------------------------------------------- streams


def _chat_event(heard: Heard, texts: list[str], event: Mapping[str, Any]) -> None:
    for choice in _mappings(event.get("choices"))[:1]:
        delta = _mapping(choice.get("delta"))
        texts += (_text(delta.get("content")), _text(delta.get("refusal")))
        heard.refused |= bool(delta.get("refusal"))
        for call in _mappings(delta.get("tool_calls")):
            function = _mapping(call.get("function"))
            _add_to_call(heard, call.get("index"), function.get("name"), function.get("arguments"))
        heard.ending = _ending(choice.get("finish_reason")) or heard.ending


def _completion_event(heard: Heard, texts: list[str], event: Mapping[str, Any]) -> None:
    for choice in _mappings(event.get("choices"))[:1]:
        texts.append(_text(choice.get("text")))
        heard.ending = _ending(choice.get("finish_reason")) or heard.ending


def _response_event(heard: Heard, texts: list[str], event: Mapping[str, Any]) -> None:
    kind = event.get("type")
    if kind in ("response.output_text.delta", "response.refusal.delta"):
        texts.append(_text(event.get("delta")))
        heard.refused |= kind == "response.refusal.delta"
    elif kind == "response.output_item.added":
        item = _mapping(event.get("item"))
        if item.get("type") == "function_call":
            heard.tools.append(ToolCall(_text(item.get("name"))))
    elif kind == "response.function_call_arguments.delta":
        _add_to_call(heard, None, None, event.get("delta"))
    elif kind in ("response.completed", "response.incomplete"):
        heard.ending = _response_ending(_mapping(event.get("response")))


def _message_event(heard: Heard, texts: list[str], event: Mapping[str, Any]) -> None:
    kind, delta = event.get("type"), _mapping(event.get("delta"))
    if kind == "content_block_start":
        block = _mapping(event.get("content_block"))
        if block.get("type") == "tool_use":
            heard.tools.append(ToolCall(_text(block.get("name"))))
        elif block.get("type") == "text":
            texts.append(_text(block.get("text")))
    elif kind == "content_block_delta":
        texts.append(_text(delta.get("text")))
        if delta.get("type") == "input_json_delta":
            _add_to_call(heard, None, None, delta.get("partial_json"))
    elif kind == "message_delta":
        heard.ending = _ending(delta.get("stop_reason")) or heard.ending
        heard.refused |= heard.ending == "filter"


_EVENTS: Final[dict[str, Callable[[Heard, list[str], Mapping[str, Any]], None]]] = {
    "createChatCompletion": _chat_event,
    "createCompletion": _completion_event,
    "createResponse": _response_event,
    "createMessage": _message_event,
}


def _add_to_call(heard: Heard, index: Any, name: Any, arguments: Any) -> None:
    """More of a tool call: of the one with this number, or of the latest."""
    if not heard.tools or (isinstance(index, int) and index >= len(heard.tools)):
        heard.tools.append(ToolCall())
    at = index if isinstance(index, int) and 0 <= index < len(heard.tools) else -1
    heard.tools[at].name += _text(name)
    heard.tools[at].arguments += _text(arguments)


# ---------------------------------------------------------------- anything


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _first(value: Any) -> Mapping[str, Any]:
    return next(iter(_mappings(value)), {})


def _text(value: Any) -> str:
    """A text, or the texts of parts."""
    if isinstance(value, str):
        return value
    parts: Iterable[Mapping[str, Any]] = _mappings(value)
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _ending(value: Any) -> Ending:
    return _ENDINGS.get(value, "") if isinstance(value, str) else ""


def _response_ending(response: Mapping[str, Any]) -> Ending:
    reason = _mapping(response.get("incomplete_details")).get("reason")
    return _ending(reason) or _ending(response.get("status"))
