"""A request to `/v1/messages`, understood as a chat completion for a server that speaks only that."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from penstock.errors import InvalidRequestError
from penstock.protocol import fields
from penstock.protocol.anthropic_blocks import MessageParam, System, chat_messages
from penstock.protocol.decode import decode, shown
from penstock.protocol.fields import Field, Ignored, Refused

EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_ONLY_THERE: Final = "Only Anthropic's own servers have it."


class ToolParam(msgspec.Struct):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Metadata(msgspec.Struct):
    user_id: str | None = None


class Format(msgspec.Struct):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: Format | None = None


class MessagesRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A conversation to be continued, in Anthropic's form."""

    messages: list[MessageParam]
    max_tokens: Annotated[int, Meta(ge=1, description="The most tokens of the answer.")]
    model: Annotated[str, Meta(description="A name from /v1/models.")] | None = None
    system: System | None = None
    stream: Annotated[bool, Meta(description="Send named events as tokens arrive.")] | None = None
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    tools: list[ToolParam] | None = None
    tool_choice: ToolChoice | None = None
    metadata: Metadata | None = None
    output_config: OutputConfig | None = None


TABLE: tuple[Field, ...] = (
    Ignored("thinking", dict[str, Any], "A model that thinks does so by its own template."),
    Ignored("cache_control", dict[str, Any], "Prefixes are cached anyway."),
    Ignored("service_tier", str, "The gateway's own business."),
    Ignored("inference_geo", str, "The gateway's own business."),
    Ignored("diagnostics", dict[str, Any], "There are none."),
    Ignored("context_management", dict[str, Any], "Nothing is edited; the context is what is sent."),
    Refused("container", (), _ONLY_THERE),
    Refused("mcp_servers", ([],), _ONLY_THERE),
    Refused("speed", ("standard",), _ONLY_THERE),
    Refused("user_profile_id", (), _ONLY_THERE),
    Refused("workspace_id", (), _ONLY_THERE),
    Refused("fallbacks", ([],), "The gateway has its own."),
)
MessagesWire = fields.with_fields(MessagesRequest, TABLE)
_decoder: Final = msgspec.json.Decoder(MessagesWire)


def to_chat(body: bytes) -> dict[str, Any]:
    """The chat completion request, or InvalidRequestError. The usage of a stream is always asked for.

    How hard to think is not passed on: servers that know chat completions differ too much in that.
    """
    request = decode(_decoder, body)
    fields.refuse(request, TABLE)
    result: dict[str, Any] = {
        "messages": chat_messages(request.system, request.messages),
        "max_tokens": request.max_tokens,
    }
    if request.model is not None:
        result["model"] = request.model
    if request.stream:
        result |= {"stream": True, "stream_options": {"include_usage": True}}
    if request.stop_sequences:
        result["stop"] = request.stop_sequences
    for name in ("temperature", "top_p", "top_k"):
        if (value := getattr(request, name)) is not None:
            result[name] = value
    if request.tools:
        result["tools"] = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(request.tools)]
        if request.tool_choice is not None:
            result |= _tool_choice(request.tool_choice)
    if request.metadata is not None and request.metadata.user_id:
        result["user"] = request.metadata.user_id
    config = request.output_config or OutputConfig()
    if config.format is not None:
        schema = {"name": "answer", "schema": config.format.schema, "strict": True}
        result["response_format"] = {"type": "json_schema", "json_schema": schema}
    if config.effort is not None and config.effort not in EFFORTS:
        raise InvalidRequestError(
            f"output_config.effort must be {', '.join(EFFORTS)}, got {shown(config.effort)}.",
            param="output_config.effort",
        )
    return result


def _tool(tool: ToolParam, where: str) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        raise InvalidRequestError(
            f"{where} has the type {shown(tool.type)}, which only Anthropic's own servers run; this model "
            "takes tools with an input_schema.",
            param=f"{where}.type",
        )
    if tool.input_schema is None:
        raise InvalidRequestError(f"{where}.input_schema is required.", param=f"{where}.input_schema")
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description:
        function["description"] = tool.description
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> dict[str, Any]:
    result: dict[str, Any]
    match choice:
        case ToolChoice(type="auto"):
            result = {"tool_choice": "auto"}
        case ToolChoice(type="any"):
            result = {"tool_choice": "required"}
        case ToolChoice(type="none"):
            result = {"tool_choice": "none"}
        case ToolChoice(type="tool", name=str(name)):
            result = {"tool_choice": {"type": "function", "function": {"name": name}}}
        case _:
            raise InvalidRequestError(
                "tool_choice must be of type auto, any, none, or tool with a name, got "
                f"{shown(choice.type)}.",
                param="tool_choice.type",
            )
    if choice.disable_parallel_tool_use:
        result["parallel_tool_calls"] = False
    return result
