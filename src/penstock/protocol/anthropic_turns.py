"""From a chat's messages to Anthropic's turns: one system prompt, then user and assistant by turns."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequestError
from penstock.protocol.anthropic_chat import (
    Assistant,
    Content,
    Developer,
    ImagePart,
    Instruction,
    Message,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolResult,
    User,
)
from penstock.protocol.decode import shown

Block = dict[str, Any]

IMAGE_TYPES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
_DATA_URL: Final = re.compile(r"data:(?P<type>[^;,]*);base64,(?P<data>[A-Za-z0-9+/=_-]+)\Z")


def system_and_turns(messages: list[Message]) -> tuple[str, list[dict[str, Any]]]:
    """The system prompt, and the turns: what one side says in a row is one turn.

    Instructions are gathered from wherever they stand, one line after another, as Anthropic's own layer
    for OpenAI clients does it. The results of tools are what the user answers to the assistant's calls.
    """
    system: list[str] = []
    turns: list[dict[str, Any]] = []
    called: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        match message:
            case Instruction() | Developer():
                system += [block["text"] for block in _blocks(message.content, where, images=False)]
                continue
            case User():
                role, blocks = "user", _blocks(message.content, where)
                if not blocks:
                    raise InvalidRequestError(
                        f"{where}.content is empty; say something.", param=f"{where}.content"
                    )
            case ToolResult():
                if message.tool_call_id not in called:
                    raise InvalidRequestError(
                        f"{where} answers the tool call {shown(message.tool_call_id)}, but no earlier "
                        "assistant message made it.",
                        param=f"{where}.tool_call_id",
                    )
                role, blocks = "user", [_result(message, where)]
            case Assistant():
                role, blocks = "assistant", _assistant(message, where)
                called.update(block["id"] for block in blocks if block["type"] == "tool_use")
        if not blocks:
            continue  # an assistant that said nothing: Anthropic refuses empty text
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if not turns:
        raise InvalidRequestError("messages needs at least one message of a user.", param="messages")
    return "\n".join(system), turns


def _assistant(message: Assistant, where: str) -> list[Block]:
    blocks: list[Block] = []
    for index, block in enumerate(message.thinking_blocks or ()):
        if block.get("type") not in ("thinking", "redacted_thinking"):
            raise InvalidRequestError(
                f"{where}.thinking_blocks[{index}] must be of type thinking or redacted_thinking.",
                param=f"{where}.thinking_blocks[{index}].type",
            )
        blocks.append(block)
    if message.content is not None:
        blocks += _blocks(message.content, where, images=False)
    elif message.refusal:
        blocks.append({"type": "text", "text": message.refusal})
    for index, call in enumerate(message.tool_calls or ()):
        blocks.append(_tool_use(call, f"{where}.tool_calls[{index}]"))
    return blocks


def _tool_use(call: ToolCall, where: str) -> Block:
    if call.type != "function":
        raise InvalidRequestError(
            f"{where} has the type {shown(call.type)}; only function calls can be translated.",
            param=f"{where}.type",
            code="unsupported_value",
        )
    try:
        given = msgspec.json.decode(call.function.arguments or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        raise InvalidRequestError(
            f"{where}.function.arguments must be the text of a JSON object, got "
            f"{shown(call.function.arguments)}.",
            param=f"{where}.function.arguments",
        ) from None
    return {"type": "tool_use", "id": call.id, "name": call.function.name, "input": given}


def _result(message: ToolResult, where: str) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    if isinstance(message.content, str):
        content: str | list[Block] = message.content
    else:
        content = _blocks(message.content, where)
    if content:
        block["content"] = content
    return block


def _blocks(content: Content, where: str, *, images: bool = True) -> list[Block]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks: list[Block] = []
    for index, part in enumerate(content):
        place = f"{where}.content[{index}]"
        match part:
            case TextPart(text=text) | RefusalPart(refusal=text):
                if text:
                    blocks.append({"type": "text", "text": text})
            case ImagePart() if images:
                blocks.append({"type": "image", "source": _source(part.image_url.url, place)})
            case _:
                kind = part.__struct_config__.tag
                raise InvalidRequestError(
                    f"{place} has the type {kind!r}, which Anthropic's API does not take there.",
                    param=f"{place}.type",
                    code="unsupported_value",
                )
    return blocks


def _source(url: str, where: str) -> Block:
    if url.startswith(("https://", "http://")):
        return {"type": "url", "url": url}
    found = _DATA_URL.match(url)
    if found is None:
        raise InvalidRequestError(
            f"{where}.image_url.url must be an http(s) URL or data:TYPE;base64,DATA, got {shown(url, 40)}.",
            param=f"{where}.image_url.url",
        )
    if found["type"] not in IMAGE_TYPES:
        raise InvalidRequestError(
            f"{where} is an image of type {shown(found['type'])}; {', '.join(IMAGE_TYPES)} are taken.",
            param=f"{where}.image_url.url",
        )
    return {"type": "base64", "media_type": found["type"], "data": found["data"]}
