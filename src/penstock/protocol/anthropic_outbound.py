"""A chat completion, whole or in chunks, given to a client of `/v1/messages`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.protocol.foreign import ForeignAnswerError

_STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function = msgspec.field(default_factory=_Function)


class _Said(msgspec.Struct):
    """A message, or a delta of one."""

    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Said | None = None
    delta: _Said | None = None
    finish_reason: str | None = None
    stop_reason: Any = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class ChatUsage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None
    cost: float | None = None
    latency_ms: float | None = None

    def anthropic(self) -> dict[str, Any]:
        """Anthropic counts what came from the cache apart; OpenAI counts it in."""
        cached = (self.prompt_tokens_details and self.prompt_tokens_details.cached_tokens) or 0
        usage: dict[str, Any] = {
            "input_tokens": max(0, self.prompt_tokens - cached),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": self.completion_tokens,
        }
        for name in ("cost", "latency_ms"):
            if (value := getattr(self, name)) is not None:
                usage[name] = value
        return usage


class _Completion(msgspec.Struct):
    id: str = ""
    choices: list[_Choice] = msgspec.field(default_factory=list)
    usage: ChatUsage | None = None


_completions: Final = msgspec.json.Decoder(_Completion)


def to_message(body: bytes, model: str) -> dict[str, Any]:
    """Anthropic's message. Raises ForeignAnswerError for what is no chat completion."""
    completion = _decoded(body)
    if not completion.choices or completion.choices[0].message is None:
        raise ForeignAnswerError("The server's answer is not a chat completion.")
    choice = completion.choices[0]
    said = completion.choices[0].message
    content: list[dict[str, Any]] = []
    if thought := said.reasoning_content or said.reasoning:
        content.append({"type": "thinking", "thinking": thought, "signature": ""})
    if text := said.content or said.refusal:
        content.append({"type": "text", "text": text})
    content += [
        {
            "type": "tool_use",
            "id": call.id or "",
            "name": call.function.name or "",
            "input": _input(call.function.arguments or "{}"),
        }
        for call in said.tool_calls or ()
    ]
    return {
        "id": message_id(completion.id),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        **stopped(choice.finish_reason, choice.stop_reason),
        "usage": (completion.usage or ChatUsage()).anthropic(),
    }


def message_id(given: str) -> str:
    return f"msg_{given}"


def stopped(finish_reason: str | None, stop_reason: Any) -> dict[str, Any]:
    """Why it ended. Which stop string it was is an addition that vLLM and Penstock make."""
    if finish_reason == "stop" and isinstance(stop_reason, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": stop_reason}
    return {"stop_reason": _STOP_REASONS.get(finish_reason or "", "end_turn"), "stop_sequence": None}


def _input(arguments: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        # A model may write anything: Anthropic's clients want an object all the same.
        return {"unparsed_arguments": arguments}


def _decoded(body: bytes) -> _Completion:
    try:
        return _completions.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ForeignAnswerError("The server's answer is not a chat completion.") from None


def decoded_chunk(data: bytes) -> _Completion:
    return _decoded(data)
