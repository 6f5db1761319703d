"""From Anthropic's stream of named events to the chunks of a chat completion."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.protocol import sse
from penstock.protocol.anthropic_answer import ChatHeader
from penstock.protocol.anthropic_errors import Trouble, stream_trouble
from penstock.protocol.anthropic_wire import (
    AnthropicUsage,
    BlockDelta,
    MessageDelta,
    StreamEvent,
    finish_reason,
)
from penstock.protocol.estimate import Estimate
from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.shapes import UsageCount
from penstock.protocol.sse_reader import Event

_events: Final = msgspec.json.Decoder(StreamEvent)
_block_delta: Final = msgspec.json.Decoder(BlockDelta)
_message_delta: Final = msgspec.json.Decoder(MessageDelta)


class StreamTroubleError(ForeignAnswerError):
    """The server ended the stream with an error event of its own."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


class ChatChunks:
    """One stream. Feed it every event; it gives the bytes for the client.

    `usage.prompt` is exact from the first event on. `usage.completion` is an estimate (see `estimate`)
    until Anthropic's own count comes with the end; `complete` says that it has.
    """

    def __init__(self, header: ChatHeader) -> None:
        self.usage = UsageCount()
        self.started = False
        self.complete = False
        self._header = header
        self._id = ""
        self._first: AnthropicUsage | None = None
        self._estimate = Estimate()
        self._calls = 0
        self._tool: _OpenTool | None = None
        self._thought: dict[str, Any] | None = None

    def feed(self, event: Event) -> bytes:
        """What the event says, as chunks: often one, sometimes none."""
        try:
            given = _events.decode(event.data)
            handler = _HANDLERS.get(given.type)
            if handler is None:  # more kinds may come; a reader is to pass over them
                return b""
            if not self.started and given.type not in ("message_start", "error", "ping"):
                raise ForeignAnswerError("The server's stream does not begin with message_start.")
            return handler(self, given)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ForeignAnswerError("An event of the server's stream is not one of Anthropic's.") from None

    def closing(self) -> bytes:
        """The last of the stream: the usage, if asked for, and the end mark."""
        usage = b""
        if self._header.include_usage:
            usage = sse.event(self._chunk([], {"usage": self.usage.message()}))
        return usage + sse.DONE

    def _start(self, given: StreamEvent) -> bytes:
        if given.message is None:
            raise ForeignAnswerError("The server's message_start has no message.")
        self.started = True
        self._id = given.message.id
        self._first = given.message.usage
        self._first.update(self.usage)
        self.usage.completion = 0  # Anthropic's first count is of what it is about to send
        return self._delta({"role": "assistant", "content": ""})

    def _block_start(self, given: StreamEvent) -> bytes:
        block = given.content_block or {}
        match block:
            case {"type": "tool_use", "id": str(id), "name": str(name)}:
                self._tool = _OpenTool(self._calls, block.get("input") or {})
                self._calls += 1
                function = {"name": name, "arguments": ""}
                call = {"index": self._tool.index, "id": id, "type": "function", "function": function}
                return self._delta({"tool_calls": [call]})
            case {"type": "text", "text": str(text)} if text:
                return self._text(text)
            case {"type": "thinking"}:
                self._thought = {"type": "thinking", "thinking": "", "signature": ""}
            case {"type": "redacted_thinking"}:
                return self._delta({"thinking_blocks": [block]})
        return b""

    def _block_delta(self, given: StreamEvent) -> bytes:
        delta = _block_delta.decode(given.delta)
        match delta.type:
            case "text_delta" if delta.text:
                return self._text(delta.text)
            case "thinking_delta" if delta.thinking:
                self._count(delta.thinking)
                if self._thought is not None:
                    self._thought["thinking"] += delta.thinking
                return self._delta({"reasoning_content": delta.thinking, "reasoning": delta.thinking})
            case "signature_delta" if self._thought is not None:
                self._thought["signature"] += delta.signature
            case "input_json_delta" if delta.partial_json and self._tool is not None:
                self._tool.spoken = True
                return self._arguments(delta.partial_json)
        return b""

    def _block_stop(self, given: StreamEvent) -> bytes:
        tool, self._tool = self._tool, None
        thought, self._thought = self._thought, None
        if thought is not None and thought["signature"]:
            return self._delta({"thinking_blocks": [thought]})
        if tool is not None and not tool.spoken:  # a call without arguments has no delta at all
            return self._arguments(msgspec.json.encode(tool.given).decode(), tool.index)
        return b""

    def _message_delta(self, given: StreamEvent) -> bytes:
        if given.usage is not None:
            given.usage.update(self.usage, self._first)
        delta = _message_delta.decode(given.delta)
        if delta.stop_reason is None:
            return b""
        data = b""
        if delta.stop_reason == "refusal" and delta.stop_details and delta.stop_details.explanation:
            data = self._delta({"refusal": delta.stop_details.explanation})
        choice = {
            "index": 0,
            "delta": {},
            "logprobs": None,
            "finish_reason": finish_reason(delta.stop_reason),
            "stop_reason": delta.stop_sequence,
        }
        return data + sse.event(self._chunk([choice]))

    def _stop(self, given: StreamEvent) -> bytes:
        self.complete = True
        return b""

    def _ping(self, given: StreamEvent) -> bytes:
        return b""

    def _error(self, given: StreamEvent) -> bytes:
        raise StreamTroubleError(stream_trouble(given.error))

    def _text(self, text: str) -> bytes:
        self._count(text)
        return self._delta({"content": text})

    def _arguments(self, text: str, index: int | None = None) -> bytes:
        self._count(text)
        if index is None:
            assert self._tool is not None
            index = self._tool.index
        return self._delta({"tool_calls": [{"index": index, "function": {"arguments": text}}]})

    def _count(self, text: str) -> None:
        self._estimate.add(text)
        self.usage.completion = self._estimate.tokens

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return sse.event(self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]))

    def _chunk(self, choices: list[dict[str, Any]], extra: dict[str, Any] | None = None) -> dict[str, Any]:
        chunk = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._header.created,
            "model": self._header.model,
            "choices": choices,
        }
        if self._header.include_usage:
            chunk["usage"] = None
        return chunk | (extra or {})


class _OpenTool:
    """A call whose arguments are still arriving."""

    __slots__ = ("given", "index", "spoken")

    def __init__(self, index: int, given: dict[str, Any]) -> None:
        self.index = index
        self.given = given  # arguments that came with the block's start
        self.spoken = False  # whether any have come since


_HANDLERS: Final = {
    "message_start": ChatChunks._start,
    "content_block_start": ChatChunks._block_start,
    "content_block_delta": ChatChunks._block_delta,
    "content_block_stop": ChatChunks._block_stop,
    "message_delta": ChatChunks._message_delta,
    "message_stop": ChatChunks._stop,
    "ping": ChatChunks._ping,
    "error": ChatChunks._error,
}
