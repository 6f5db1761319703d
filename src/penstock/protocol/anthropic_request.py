"""From a chat completion request to Anthropic's `POST /v1/messages`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from penstock.errors import InvalidRequestError
from penstock.protocol import fields
from penstock.protocol.anthropic_chat import TABLE, AnthropicChatWire, ChatRequest, NamedTool, Tool
from penstock.protocol.anthropic_turns import system_and_turns
from penstock.protocol.decode import decode, shown

# The first API version without temperature, top_p and top_k.
VERSION_WITHOUT_SAMPLING: Final = "2026-10-21"
_SAMPLING: Final = ("temperature", "top_p", "top_k")
_EFFORTS: Final = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh"}
_BUDGETS: Final = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768}  # tokens

_decoder: Final = msgspec.json.Decoder(AnthropicChatWire)


@dataclass(frozen=True, slots=True)
class AnthropicOptions:
    """What differs between Anthropic's models and API versions, from the backend's configuration."""

    version: str = "2023-06-01"  # the anthropic-version header of translated requests
    max_tokens: int = 4096  # Anthropic wants a limit; this one when the client gives none
    sampling: Literal["pass", "drop"] = "pass"  # newer models refuse temperature, top_p and top_k
    thinking: Literal["adaptive", "budget"] = "adaptive"  # models before Claude 4.6 take budgets only


def to_messages(body: bytes, model: str, options: AnthropicOptions) -> dict[str, Any]:
    """The translated request, or InvalidRequestError that names the field Anthropic has no word for."""
    request = decode(_decoder, body)
    fields.refuse(request, TABLE)
    system, turns = system_and_turns(request.messages)
    limit = request.max_completion_tokens or request.max_tokens or options.max_tokens
    result: dict[str, Any] = {"model": model, "max_tokens": limit, "messages": turns}
    if system:
        result["system"] = system
    if request.stream:
        result["stream"] = True
    stops = [request.stop] if isinstance(request.stop, str) else request.stop
    if stops:
        result["stop_sequences"] = stops
    result |= _sampling(request, options)
    if request.tools:
        result["tools"] = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(request.tools)]
        if (choice := _tool_choice(request.tool_choice, request.parallel_tool_calls)) is not None:
            result["tool_choice"] = choice
    elif isinstance(request.tool_choice, NamedTool) or request.tool_choice == "required":
        raise InvalidRequestError("tool_choice asks for a tool, but there are no tools.", param="tool_choice")
    result |= _output(request, options)
    if user := request.safety_identifier or request.user:
        result["metadata"] = {"user_id": user}
    return result


def _sampling(request: ChatRequest, options: AnthropicOptions) -> dict[str, Any]:
    given = {name: value for name in _SAMPLING if (value := getattr(request, name)) is not None}
    if given.get("top_k", 1) < 1:
        del given["top_k"]  # 0 and -1 mean all tokens, which is Anthropic's default
    if options.sampling == "drop":
        return {}
    if given and options.version >= VERSION_WITHOUT_SAMPLING:
        name = next(iter(given))
        raise InvalidRequestError(
            f"{name} is not supported: version {options.version} of Anthropic's API has no sampling "
            f"parameters. Leave it out.",
            param=name,
            code="unsupported_parameter",
        )
    if "temperature" in given:
        given["temperature"] = min(given["temperature"], 1.0)  # Anthropic's scale ends at 1, OpenAI's at 2
    return given


def _tool(tool: Tool, where: str) -> dict[str, Any]:
    if tool.type != "function" or tool.function is None:
        raise InvalidRequestError(
            f"{where} has the type {shown(tool.type)}; only function tools can be translated. Anthropic's "
            "own tools are taken at /v1/messages.",
            param=f"{where}.type",
            code="unsupported_value",
        )
    function = tool.function
    result: dict[str, Any] = {
        "name": function.name,
        "input_schema": function.parameters or {"type": "object", "properties": {}},
    }
    if function.description:
        result["description"] = function.description
    if function.strict:
        result["strict"] = True
    return result


def _tool_choice(choice: str | NamedTool | None, parallel: bool | None) -> dict[str, Any] | None:
    result: dict[str, Any]
    match choice:
        case None if parallel is not False:
            return None
        case None | "auto":
            result = {"type": "auto"}
        case "none":
            return {"type": "none"}
        case "required":
            result = {"type": "any"}
        case NamedTool(type="function", function=function) if function is not None:
            result = {"type": "tool", "name": function.name}
        case NamedTool(type=kind):
            raise InvalidRequestError(
                f"tool_choice of type {shown(kind)} is not supported; name a function.", param="tool_choice"
            )
        case _:
            raise InvalidRequestError(
                f"tool_choice must be none, auto, required or a function, got {shown(choice)}.",
                param="tool_choice",
            )
    if parallel is False:
        result["disable_parallel_tool_use"] = True
    return result


def _output(request: ChatRequest, options: AnthropicOptions) -> dict[str, Any]:
    """The shape of the answer, and how hard to think about it."""
    config: dict[str, Any] = {}
    result: dict[str, Any] = {}
    shape = request.response_format
    if shape is not None and shape.type != "text":
        if shape.type != "json_schema" or shape.json_schema is None or shape.json_schema.schema is None:
            raise InvalidRequestError(
                f"response_format of type {shown(shape.type)} is not supported: Anthropic's API takes a "
                "json_schema with its schema.",
                param="response_format",
                code="unsupported_value",
            )
        config["format"] = {"type": "json_schema", "schema": shape.json_schema.schema}
    effort = request.reasoning_effort
    if effort == "none":
        result["thinking"] = {"type": "disabled"}
    elif effort is not None:
        if effort not in _EFFORTS:
            raise InvalidRequestError(
                f"reasoning_effort must be none, {', '.join(_EFFORTS)}, got {shown(effort)}.",
                param="reasoning_effort",
            )
        if options.thinking == "budget":
            limit = request.max_completion_tokens or request.max_tokens or options.max_tokens
            budget = _BUDGETS[effort]
            result["thinking"] = {"type": "enabled", "budget_tokens": budget}
            if limit <= budget:  # Anthropic counts thoughts in, and wants room for an answer
                result["max_tokens"] = budget + limit
        else:
            result["thinking"] = {"type": "adaptive"}
            config["effort"] = _EFFORTS[effort]
    if request.thinking is not None:
        result["thinking"] = request.thinking
    if config:
        result["output_config"] = config
    return result
