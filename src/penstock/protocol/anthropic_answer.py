"""From Anthropic's answer to a chat completion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from penstock.protocol.anthropic_wire import AnthropicMessage, finish_reason
from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.shapes import UsageCount

_decoder: Final = msgspec.json.Decoder(AnthropicMessage)


@dataclass(frozen=True, slots=True)
class ChatHeader:
    """What every message of one answer repeats."""

    model: str  # as the client calls it
    created: int  # Unix time
    include_usage: bool = False


def to_completion(body: bytes, header: ChatHeader) -> tuple[dict[str, Any], UsageCount]:
    """The chat completion, and the tokens it took. Raises ForeignAnswerError for what is no message."""
    try:
        message = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ForeignAnswerError("The server's answer is not one of Anthropic's messages.") from None
    usage = UsageCount()
    message.usage.update(usage)
    return {
        "id": message.id,
        "object": "chat.completion",
        "created": header.created,
        "model": header.model,
        "choices": [
            {
                "index": 0,
                "message": _message(message),
                "logprobs": None,
                "finish_reason": finish_reason(message.stop_reason),
                "stop_reason": message.stop_sequence,
            }
        ],
        "usage": usage.message(),
    }, usage


def _message(message: AnthropicMessage) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    thinking: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for block in message.content:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "thinking", "thinking": str(thought)}:
                thoughts.append(thought)
                thinking.append(block)
            case {"type": "redacted_thinking"}:
                thinking.append(block)
            case {"type": "tool_use", "id": str(id), "name": str(name)}:
                arguments = msgspec.json.encode(block.get("input") or {}).decode()
                function = {"name": name, "arguments": arguments}
                calls.append({"id": id, "type": "function", "function": function})
    refusal = None
    if message.stop_reason == "refusal" and message.stop_details is not None:
        refusal = message.stop_details.explanation
    result: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(texts) if texts or not calls else None,
        "refusal": refusal,
    }
    if thoughts:
        result["reasoning_content"] = result["reasoning"] = "".join(thoughts)
    if thinking:
        result["thinking_blocks"] = thinking
    if calls:
        result["tool_calls"] = calls
    return result
