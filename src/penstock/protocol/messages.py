"""Chat messages: their structs, the rules between them, and the plain dicts a chat template gets."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.engine.request import MAX_COUNT
from penstock.errors import InvalidRequestError
from penstock.protocol.decode import shown
from penstock.protocol.plain import check_plain


class TextPart(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    text: str
    prompt_cache_breakpoint: Annotated[Any, Meta(description="Ignored. Prefixes are cached anyway.")] = None


class RefusalPart(msgspec.Struct, tag_field="type", tag="refusal", forbid_unknown_fields=True):
    """Only in an assistant's message."""

    refusal: str


# Known so that the sentence can say what is wrong; whatever they carry is not looked at.
class ImagePart(msgspec.Struct, tag_field="type", tag="image_url"):
    """Refused: the model is text-only."""


class VideoPart(msgspec.Struct, tag_field="type", tag="video_url"):
    """Refused: the model is text-only."""


class AudioPart(msgspec.Struct, tag_field="type", tag="input_audio"):
    """Refused: the model is text-only."""


class AudioLinkPart(msgspec.Struct, tag_field="type", tag="audio_url"):
    """Refused: the model is text-only."""


class FilePart(msgspec.Struct, tag_field="type", tag="file"):
    """Refused: the model is text-only."""


Part = TextPart | RefusalPart | ImagePart | VideoPart | AudioPart | AudioLinkPart | FilePart
Content = str | list[Part]


class SystemMessage(msgspec.Struct, tag_field="role", tag="system", forbid_unknown_fields=True):
    content: Content
    name: str | None = None


class DeveloperMessage(msgspec.Struct, tag_field="role", tag="developer", forbid_unknown_fields=True):
    """The same as a system message."""

    content: Content
    name: str | None = None


class UserMessage(msgspec.Struct, tag_field="role", tag="user", forbid_unknown_fields=True):
    content: Content
    name: str | None = None


class FunctionCall(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str


class ToolCall(msgspec.Struct, tag_field="type", tag="function", forbid_unknown_fields=True):
    id: str
    function: FunctionCall
    index: Annotated[int, Meta(ge=0, le=MAX_COUNT)] | None = None


class CustomToolCall(msgspec.Struct, tag_field="type", tag="custom"):
    """Refused: only function calls are known."""


class AssistantMessage(msgspec.Struct, tag_field="role", tag="assistant", forbid_unknown_fields=True):
    """An earlier answer, as the client got it. Content may be absent only beside tool calls or a refusal."""

    content: Content | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall | CustomToolCall] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    annotations: Annotated[Any, Meta(description="Ignored. Comes with answers of other servers.")] = None
    audio: Annotated[Any, Meta(description="Not supported. The model is text-only.")] = None
    function_call: Annotated[Any, Meta(description="Not supported. Use tool_calls.")] = None


class ToolMessage(msgspec.Struct, tag_field="role", tag="tool", forbid_unknown_fields=True):
    """The answer to a tool call of an earlier assistant message."""

    content: Content
    tool_call_id: str
    name: str | None = None


class FunctionMessage(msgspec.Struct, tag_field="role", tag="function"):
    """Refused: the old form of a tool message."""


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage


def to_template(messages: list[Message]) -> list[dict[str, Any]]:
    """Check the rules between messages and give what a chat template expects: role and text content."""
    if not messages:
        raise InvalidRequestError("messages must have at least one message.", param="messages")
    called: set[str] = set()
    result: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        match message:
            case AssistantMessage():
                entry = _assistant(message, where)
                called.update(call["id"] for call in entry.get("tool_calls", ()))
            case ToolMessage():
                if message.tool_call_id not in called:
                    raise InvalidRequestError(
                        f"{where} answers the tool call {shown(message.tool_call_id)}, "
                        "but no earlier assistant message made it.",
                        param=f"{where}.tool_call_id",
                    )
                entry = {
                    "role": "tool",
                    "content": _text(message.content, where),
                    "tool_call_id": message.tool_call_id,
                }
            case FunctionMessage():
                raise InvalidRequestError(
                    f"{where} has the role 'function', which is not supported; use the role 'tool'.",
                    param=f"{where}.role",
                    code="unsupported_value",
                )
            case UserMessage():
                entry = {"role": "user", "content": _text(message.content, where)}
            case SystemMessage() | DeveloperMessage():
                # Templates know no developer role; it is the newer name of system.
                entry = {"role": "system", "content": _text(message.content, where)}
        if message.name is not None:
            entry["name"] = message.name
        result.append(entry)
    return result


def _assistant(message: AssistantMessage, where: str) -> dict[str, Any]:
    for field in ("audio", "function_call"):
        if getattr(message, field) is not None:
            raise InvalidRequestError(
                f"{where}.{field} is not supported.", param=f"{where}.{field}", code="unsupported_parameter"
            )
    check_plain(message.annotations, f"{where}.annotations")
    if message.content is None and not message.tool_calls and message.refusal is None:
        raise InvalidRequestError(
            f"{where} has neither content nor tool_calls; an assistant message needs one of them.",
            param=f"{where}.content",
        )
    # Templates concatenate content without looking: null would fail there.
    content = (
        message.refusal or "" if message.content is None else _text(message.content, where, refusal=True)
    )
    entry: dict[str, Any] = {"role": "assistant", "content": content}
    thought = message.reasoning if message.reasoning_content is None else message.reasoning_content
    if thought is not None:
        # Clients send back one of the two names, and templates read one of them: not always the same.
        entry["reasoning_content"] = thought
        entry["reasoning"] = thought if message.reasoning is None else message.reasoning
    if message.tool_calls:
        entry["tool_calls"] = [
            _tool_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(message.tool_calls)
        ]
    return entry


def _tool_call(call: ToolCall | CustomToolCall, where: str) -> dict[str, Any]:
    if isinstance(call, CustomToolCall):
        raise InvalidRequestError(
            f"{where} is a custom tool call, which is not supported; use type 'function'.",
            param=f"{where}.type",
            code="unsupported_value",
        )
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": call.function.arguments},
    }


def _text(content: Content, where: str, *, refusal: bool = False) -> str | list[dict[str, str]]:
    """Text as it came: a string, or parts for the templates that want to join them themselves."""
    if isinstance(content, str):
        return content
    if not content:
        raise InvalidRequestError(f"{where}.content must have at least one part.", param=f"{where}.content")
    texts = []
    for index, part in enumerate(content):
        match part:
            case TextPart():
                check_plain(part.prompt_cache_breakpoint, f"{where}.content[{index}].prompt_cache_breakpoint")
                texts.append({"type": "text", "text": part.text})
            case RefusalPart() if refusal:
                texts.append({"type": "text", "text": part.refusal})
            case RefusalPart():
                raise InvalidRequestError(
                    f"{where}.content[{index}] is a refusal, which only an assistant message may have.",
                    param=f"{where}.content[{index}].type",
                )
            case _:
                kind = part.__struct_config__.tag
                raise InvalidRequestError(
                    f"{where}.content[{index}] has the type {kind!r}, but the model is text-only; "
                    "send parts of type 'text'.",
                    param=f"{where}.content[{index}].type",
                    code="unsupported_value",
                )
    return texts
