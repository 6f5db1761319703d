"""A chat completion request as it is understood before it becomes one of Anthropic's messages."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.protocol import fields
from penstock.protocol.chat import ChatCompletionRequest
from penstock.protocol.fields import Field, Ignored, Refused
from penstock.protocol.generation import StreamOptions

_HOSTED = "Anthropic's API has nothing like it."


class TextPart(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class RefusalPart(msgspec.Struct, tag_field="type", tag="refusal"):
    refusal: str


class ImageURL(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    detail: str | None = None


class ImagePart(msgspec.Struct, tag_field="type", tag="image_url", forbid_unknown_fields=True):
    image_url: ImageURL


class FilePart(msgspec.Struct, tag_field="type", tag="file"):
    """Refused, as are the two below; known so that a sentence can say so."""


class AudioPart(msgspec.Struct, tag_field="type", tag="input_audio"):
    pass


class VideoPart(msgspec.Struct, tag_field="type", tag="video_url"):
    pass


Part = TextPart | RefusalPart | ImagePart | FilePart | AudioPart | VideoPart
Content = str | list[Part]


class Instruction(msgspec.Struct, tag_field="role", tag="system"):
    content: Content


class Developer(msgspec.Struct, tag_field="role", tag="developer"):
    content: Content


class User(msgspec.Struct, tag_field="role", tag="user"):
    content: Content


class Function(msgspec.Struct):
    name: str
    arguments: str


class ToolCall(msgspec.Struct):
    id: str
    function: Function
    type: str = "function"


class Assistant(msgspec.Struct, tag_field="role", tag="assistant"):
    content: Content | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    # Thoughts with their signature, as an earlier answer gave them: Anthropic takes them back unchanged only.
    thinking_blocks: list[dict[str, Any]] | None = None


class ToolResult(msgspec.Struct, tag_field="role", tag="tool"):
    content: Content
    tool_call_id: str


Message = Instruction | Developer | User | Assistant | ToolResult


class FunctionDefinition(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct):
    type: str
    function: FunctionDefinition | None = None


class NamedFunction(msgspec.Struct):
    name: str


class NamedTool(msgspec.Struct):
    type: str
    function: NamedFunction | None = None


class JSONSchema(msgspec.Struct):
    schema: dict[str, Any] | None = None
    name: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct):
    type: str
    json_schema: JSONSchema | None = None


class ChatRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is obeyed; the rest is in the table below."""

    messages: list[Message]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    stop: str | list[str] | None = None
    tools: list[Tool] | None = None
    tool_choice: str | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: str | None = None
    thinking: dict[str, Any] | None = None  # Anthropic's own field, for clients that know it
    user: str | None = None
    safety_identifier: str | None = None


_TABLE: tuple[Field, ...] = (
    Ignored("store", bool, "Nothing is stored."),
    Ignored("metadata", dict[str, str], "Kept by OpenAI beside stored completions."),
    Ignored("service_tier", str, "The gateway's own business."),
    Ignored("prompt_cache_key", str, "A routing hint."),
    Ignored("prompt_cache_retention", str, "A hint."),
    Ignored("prompt_cache_options", dict[str, Any], "A hint."),
    Ignored("request_id", str, "Use the X-Request-Id header."),
    Ignored("session_id", str, "A routing hint."),
    Ignored("priority", int, "The gateway's own business."),
    Ignored("cache_salt", str, "Anthropic keeps the caches of organizations apart."),
    Ignored("include_reasoning", bool, "Thoughts come when thinking is on."),
    Refused("n", (1,), "Send the request several times."),
    Refused("logprobs", (False,), _HOSTED),
    Refused("top_logprobs", (0,), _HOSTED),
    Refused("logit_bias", ({},), _HOSTED),
    Refused("seed", (), _HOSTED),
    Refused("presence_penalty", (0, 0.0), _HOSTED),
    Refused("frequency_penalty", (0, 0.0), _HOSTED),
    Refused("repetition_penalty", (1, 1.0), _HOSTED),
    Refused("skip_special_tokens", (True,), _HOSTED),
    Refused("add_generation_prompt", (True,), _HOSTED),
    Refused("functions", ([],), "Use tools."),
    Refused("function_call", ("none", "auto"), "Use tool_choice."),
    Refused("audio", (), _HOSTED),
    Refused("modalities", (["text"],), _HOSTED),
    Refused("prediction", (), _HOSTED),
    Refused("web_search_options", (), "Send Anthropic's own tools to /v1/messages."),
    Refused("verbosity", ("medium",), "Say in the prompt how long the answer should be."),
)


def _others(taken: set[str]) -> tuple[Field, ...]:
    """The fields that Penstock's own engines know: here they are refused by name, not called unknown."""
    listed = tuple(field for field in fields.CHAT if field.name not in taken)
    taken = taken | {field.name for field in listed}
    return listed + tuple(
        Refused(field.name, (False, 0, 0.0, [], {}), _HOSTED)
        for field in msgspec.structs.fields(ChatCompletionRequest)
        if field.name not in taken
    )


_OBEYED = {field.name for field in msgspec.structs.fields(ChatRequest)}
TABLE: tuple[Field, ...] = (*_TABLE, *_others(_OBEYED | {field.name for field in _TABLE}))
AnthropicChatWire = fields.with_fields(ChatRequest, TABLE)
