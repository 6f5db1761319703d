"""Anthropic's own messages as far as they are read here; what is new in them is passed over."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.protocol.shapes import UsageCount

Count = Annotated[int, Meta(ge=0)]


class OutputDetails(msgspec.Struct):
    thinking_tokens: Count | None = None


class AnthropicUsage(msgspec.Struct):
    """Counts are cumulative. In a stream the later ones replace the earlier ones that they name."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    output_tokens_details: OutputDetails | None = None

    def update(self, count: UsageCount, last: AnthropicUsage | None = None) -> None:
        """Put into `count` what is known; `last` has the input's counts of an earlier event."""
        known = [self, last or AnthropicUsage()]
        fresh, read, written = (
            next((value for usage in known if (value := getattr(usage, name)) is not None), 0)
            for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
        count.prompt = fresh + read + written
        count.cached = read
        if self.output_tokens is not None:
            count.completion = self.output_tokens
        details = self.output_tokens_details
        if details is not None and details.thinking_tokens is not None:
            count.reasoning = details.thinking_tokens


class StopDetails(msgspec.Struct):
    explanation: str | None = None


class AnthropicMessage(msgspec.Struct):
    id: str
    content: list[dict[str, Any]]
    usage: AnthropicUsage
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: StopDetails | None = None


class MessageDelta(msgspec.Struct):
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: StopDetails | None = None


class BlockDelta(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""


class StreamEvent(msgspec.Struct):
    """Any event of a stream: each kind has some of the fields."""

    type: str
    index: int = 0
    message: AnthropicMessage | None = None
    content_block: dict[str, Any] | None = None
    delta: msgspec.Raw = msgspec.Raw(b"{}")
    usage: AnthropicUsage | None = None
    error: Any = None


FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def finish_reason(stop_reason: str | None) -> str:
    """What OpenAI calls it; a reason that is not known yet is an ordinary end."""
    return FINISH_REASONS.get(stop_reason or "", "stop")
