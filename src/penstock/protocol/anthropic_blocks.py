"""Anthropic's content blocks in a request, and the chat messages they become."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock.errors import InvalidRequestError
from penstock.protocol.decode import shown


class Text(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class Source(msgspec.Struct):
    type: str
    media_type: str = ""
    data: str = ""
    url: str = ""


class Image(msgspec.Struct, tag_field="type", tag="image"):
    source: Source


class Document(msgspec.Struct, tag_field="type", tag="document"):
    source: Source
    title: str | None = None


class ToolUse(msgspec.Struct, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class ToolResult(msgspec.Struct, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | list[Text | Image | Document] | None = None
    is_error: bool | None = None


class Thinking(msgspec.Struct, tag_field="type", tag="thinking"):
    """Left out, as is the next: what a model thought is no part of the history that others get."""


class RedactedThinking(msgspec.Struct, tag_field="type", tag="redacted_thinking"):
    pass


Block = Text | Image | Document | ToolUse | ToolResult | Thinking | RedactedThinking
System = str | list[Text]


class MessageParam(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


def chat_messages(system: System | None, messages: list[MessageParam]) -> list[dict[str, Any]]:
    """Chat messages. A result of a tool becomes a message of its own, before what else its turn says."""
    result: list[dict[str, Any]] = []
    if instruction := _instruction(system):
        result.append({"role": "system", "content": instruction})
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if isinstance(message.content, str):
            result.append({"role": message.role, "content": message.content})
        elif message.role == "assistant":
            result.append(_assistant(message.content, where))
        elif message.role == "system":
            texts = [block.text for block in message.content if isinstance(block, Text)]
            result.append({"role": "system", "content": "\n".join(texts)})
        else:
            result += _user(message.content, where)
    if not result:
        raise InvalidRequestError("messages must have at least one message.", param="messages")
    return result


def _instruction(system: System | None) -> str:
    if system is None or isinstance(system, str):
        return system or ""
    return "\n".join(block.text for block in system)


def _assistant(blocks: list[Block], where: str) -> dict[str, Any]:
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for index, block in enumerate(blocks):
        match block:
            case Text():
                texts.append(block.text)
            case ToolUse():
                function = {"name": block.name, "arguments": msgspec.json.encode(block.input).decode()}
                calls.append({"id": block.id, "type": "function", "function": function})
            case Thinking() | RedactedThinking():
                pass
            case _:
                raise _misplaced(block, f"{where}.content[{index}]")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
    if calls:
        message["tool_calls"] = calls
    return message


def _user(blocks: list[Block], where: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for index, block in enumerate(blocks):
        place = f"{where}.content[{index}]"
        match block:
            case ToolResult():
                text, images = _result(block, place)
                results.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": text})
                parts += images  # a tool's message is text: its pictures follow in the user's
            case Text() | Image() | Document():
                parts.append(_part(block, place))
            case _:
                raise _misplaced(block, place)
    if not parts:
        return results
    if len(parts) == 1 and parts[0]["type"] == "text":
        return [*results, {"role": "user", "content": parts[0]["text"]}]
    return [*results, {"role": "user", "content": parts}]


def _result(block: ToolResult, where: str) -> tuple[str, list[dict[str, Any]]]:
    if block.content is None or isinstance(block.content, str):
        return block.content or "", []
    parts = [_part(item, f"{where}.content[{index}]") for index, item in enumerate(block.content)]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    return "\n".join(texts), [part for part in parts if part["type"] != "text"]


def _part(block: Text | Image | Document, where: str) -> dict[str, Any]:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Image(source=Source(type="base64") as source):
            url = f"data:{source.media_type};base64,{source.data}"
            return {"type": "image_url", "image_url": {"url": url}}
        case Image(source=Source(type="url") as source):
            return {"type": "image_url", "image_url": {"url": source.url}}
        case Document(source=Source(type="text") as source):
            return {"type": "text", "text": source.data}
    raise InvalidRequestError(
        f"{where} has a source of type {shown(block.source.type)}, which this model's server does not take; "
        "images may be base64 or url, documents text.",
        param=f"{where}.source.type",
    )


def _misplaced(block: Block, where: str) -> InvalidRequestError:
    kind = block.__struct_config__.tag
    return InvalidRequestError(
        f"{where} has the type {kind!r}, which does not belong there.", param=f"{where}.type"
    )
