"""The chunks of a chat completion, given to a client of `/v1/messages` as Anthropic's named events."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from penstock.protocol.anthropic_outbound import (
    ChatUsage,
    decoded_chunk,
    message_id,
    stopped,
)
from penstock.protocol.foreign import ForeignAnswerError

_Kind = Literal["thinking", "text", "tool_use"]
_encode: Final = msgspec.json.Encoder().encode


class MessageEvents:
    """One stream. Feed it the data of every chunk; it gives the bytes for the client."""

    def __init__(self, model: str, prompt_tokens: int = 0) -> None:
        """`prompt_tokens`: what is known at the start; the usage of the last chunk corrects it."""
        self._model = model
        self._usage = ChatUsage(prompt_tokens=prompt_tokens)
        self._started = False
        self._index = -1  # of the open content block, or of the last one
        self._open: _Kind | None = None
        self._call: int | None = None  # the chat's index of the call in the open block
        self._stopped: dict[str, Any] | None = None

    def feed(self, data: bytes) -> bytes:
        """The events that a chunk's data makes; `[DONE]` is the caller's to see."""
        chunk = decoded_chunk(data)
        events = b"" if self._started else self._start(chunk.id)
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in chunk.choices[:1]:
            said = choice.delta
            if said is not None:
                if thought := said.reasoning_content or said.reasoning:
                    events += self._say("thinking", {"type": "thinking_delta", "thinking": thought})
                if text := said.content or said.refusal:
                    events += self._say("text", {"type": "text_delta", "text": text})
                for call in said.tool_calls or ():
                    events += self._call_delta(call.index, call.id, call.function.name)
                    if call.function.arguments:
                        events += self._delta(
                            {"type": "input_json_delta", "partial_json": call.function.arguments}
                        )
            if choice.finish_reason is not None:
                self._stopped = stopped(choice.finish_reason, choice.stop_reason)
        return events

    def closing(self) -> bytes:
        """The end, once the chat's stream has ended as it should."""
        if self._stopped is None:
            raise ForeignAnswerError("The server's stream ended before its answer did.")
        return (
            self._close()
            + _event("message_delta", delta=self._stopped, usage=self._usage.anthropic())
            + _event("message_stop")
        )

    def _start(self, id: str) -> bytes:
        self._started = True
        message: dict[str, Any] = {
            "id": message_id(id),
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage.anthropic(),
        }
        return _event("message_start", message=message)

    def _say(self, kind: _Kind, delta: dict[str, Any]) -> bytes:
        events = b""
        if self._open != kind:
            empty = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": ""}
            events = self._begin(kind, {"type": kind, **empty})
        return events + self._delta(delta)

    def _call_delta(self, index: int, id: str | None, name: str | None) -> bytes:
        if self._open == "tool_use" and self._call == index:
            return b""
        if name is None:
            raise ForeignAnswerError("The server's stream goes back to a tool call that it had left.")
        self._call = index
        return self._begin("tool_use", {"type": "tool_use", "id": id or "", "name": name, "input": {}})

    def _begin(self, kind: _Kind, block: dict[str, Any]) -> bytes:
        events = self._close()
        self._open = kind
        self._index += 1
        return events + _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _event("content_block_stop", index=self._index)


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + _encode({"type": kind, **fields}) + b"\n\n"
