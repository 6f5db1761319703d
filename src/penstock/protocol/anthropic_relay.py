"""A stream of Anthropic's on its way to a client of `/v1/messages`: passed on, with the model's name and
the usage touched and everything counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.protocol.anthropic_errors import stream_trouble
from penstock.protocol.anthropic_stream import StreamTroubleError
from penstock.protocol.anthropic_wire import AnthropicMessage, AnthropicUsage, BlockDelta, StreamEvent
from penstock.protocol.estimate import Estimate
from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.shapes import UsageCount
from penstock.protocol.sse_reader import Event

_events: Final = msgspec.json.Decoder(StreamEvent)
_deltas: Final = msgspec.json.Decoder(BlockDelta)
_messages: Final = msgspec.json.Decoder(AnthropicMessage)
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode


def relayed_message(body: bytes, model: str) -> tuple[bytes, UsageCount]:
    """A whole answer under the client's name for the model, and the tokens it took."""
    usage = UsageCount()
    try:
        _messages.decode(body).usage.update(usage)
        fields = _fields.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ForeignAnswerError("The server's answer is not one of Anthropic's messages.") from None
    return _encode(fields | {"model": model}), usage


class MessageRelay:
    """One stream. `usage` is counted as `anthropic_stream.ChatChunks` counts it."""

    def __init__(self, model: str, charged: Callable[[UsageCount], None]) -> None:
        """`charged` notes in the usage what it costs and how long it took, once it is known."""
        self.usage = UsageCount()
        self.started = False
        self.complete = False
        self._model = model
        self._charged = charged
        self._first: AnthropicUsage | None = None
        self._estimate = Estimate()

    def feed(self, event: Event) -> bytes:
        """The event's bytes for the client."""
        try:
            given = _events.decode(event.data)
            data = event.data
            match given.type:
                case "message_start" if given.message is not None:
                    self.started = True
                    self._first = given.message.usage
                    self._first.update(self.usage)
                    self.usage.completion = 0
                    data = self._renamed(data)
                case "content_block_delta":
                    delta = _deltas.decode(given.delta)
                    self._estimate.add(delta.text + delta.thinking + delta.partial_json)
                    self.usage.completion = self._estimate.tokens
                case "message_delta" if given.usage is not None:
                    given.usage.update(self.usage, self._first)
                    data = self._with_charges(data)
                case "message_stop":
                    self.complete = True
                case "error":
                    raise StreamTroubleError(stream_trouble(given.error))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ForeignAnswerError("An event of the server's stream is not one of Anthropic's.") from None
        if not self.started and given.type != "ping":
            raise ForeignAnswerError("The server's stream does not begin with message_start.")
        return b"event: " + given.type.encode() + b"\ndata: " + data + b"\n\n"

    def _with_charges(self, data: bytes) -> bytes:
        self._charged(self.usage)
        charges = {"cost": self.usage.cost, "latency_ms": self.usage.latency_ms}
        fields: dict[str, Any] = _fields.decode(data)
        usage: dict[str, Any] = _fields.decode(fields["usage"])
        usage |= {name: value for name, value in charges.items() if value is not None}
        return _encode(fields | {"usage": usage})

    def _renamed(self, data: bytes) -> bytes:
        fields: dict[str, Any] = _fields.decode(data)
        message: dict[str, Any] = _fields.decode(fields["message"])
        return _encode(fields | {"message": message | {"model": self._model}})
