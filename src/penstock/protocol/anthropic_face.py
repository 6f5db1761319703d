"""A client of `/v1/messages` in front of a server that speaks chat completions: its words both ways.

The request becomes a chat completion before anybody reads it; everything that would be written to the
client passes through here on its way out. So any backend that can chat can answer such a client.
"""

from __future__ import annotations

import msgspec

from penstock.protocol.anthropic_errors import anthropic_error_event
from penstock.protocol.anthropic_events import MessageEvents
from penstock.protocol.anthropic_inbound import to_chat
from penstock.protocol.anthropic_outbound import to_message
from penstock.protocol.errors import ErrorBody, Failure
from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.sse_reader import EventError, EventReader

_DONE = b"[DONE]"


class _Failed(msgspec.Struct):
    error: ErrorBody


class MessagesFace:
    """One exchange."""

    def __init__(self, model: str, request_id: str, prompt_tokens: int = 0) -> None:
        """`model` as the client calls it; `prompt_tokens`: what is known before the answer begins."""
        self._model = model
        self._request_id = request_id
        self._events = MessageEvents(model, prompt_tokens)
        self._reader = EventReader()

    @staticmethod
    def chat(body: bytes) -> bytes:
        """The body of the chat completion request; InvalidRequestError if the client's makes none."""
        return msgspec.json.encode(to_chat(body))

    def whole(self, body: bytes) -> bytes:
        """A whole chat completion as one of Anthropic's messages. Its cost and latency stay in its usage."""
        return msgspec.json.encode(to_message(body, self._model))

    def feed(self, data: bytes) -> bytes:
        """Any part of a chat's stream, cut anywhere. Raises ForeignAnswerError for what is none."""
        out = b""
        try:
            for event in self._reader.feed(data):
                out += self._translated(event.data)
        except EventError as error:
            raise ForeignAnswerError(str(error)) from None
        return out

    def failed(self, failure: Failure) -> bytes:
        """The error that ends a stream."""
        return anthropic_error_event(failure, self._request_id)

    def _translated(self, data: bytes) -> bytes:
        if data == _DONE:
            return self._events.closing()
        if data.startswith(b'{"error"'):
            body = msgspec.json.decode(data, type=_Failed).error
            return self.failed(Failure(_status(body.type), body))
        return self._events.feed(data)


def _status(kind: str) -> int:
    """Errors inside a stream have no status of their own; their type tells the one they would have had."""
    known = {"invalid_request_error": 400, "rate_limit_error": 429, "service_unavailable_error": 503}
    return known.get(kind, 500)
