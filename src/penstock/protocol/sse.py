"""Server-sent events, as OpenAI streams use them: unnamed, ended by `[DONE]`."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.protocol.errors import ErrorResponse, failure

CONTENT_TYPE = b"text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.Encoder().encode


def event(message: Any) -> bytes:
    """One event. JSON escapes line breaks, so the data is always a single line."""
    return b"data: " + _encode(message) + b"\n\n"


def error_event(error: BaseException) -> bytes:
    """A failure inside a stream, whose status line has already gone out as 200."""
    return event(ErrorResponse(failure(error).body))
