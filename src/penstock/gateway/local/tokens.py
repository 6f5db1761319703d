"""Where tokens come from: an engine takes token ids and gives token events.

It knows nothing of HTTP, text or JSON.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from penstock.engine.config import EngineInfo
from penstock.engine.request import Request, TokenEvent

RETRY_SECONDS = 0.05  # before a queue is tried again that others have filled


class EventStream(Protocol):
    """The events of one submitted request; each choice ends with one `finish_reason`."""

    def __aiter__(self) -> AsyncIterator[TokenEvent]:
        """The first event may raise instead, like `submit`, where only the other side can tell."""

    def close(self) -> None:
        """Stop what has not ended, and free its memory. To be called once, whatever happened."""


class TokenSource(Protocol):
    """One model, ready to generate."""

    @property
    def info(self) -> EngineInfo: ...

    def submit(self, request: Request) -> EventStream:
        """Send the request, or raise QueueFullError, EngineUnavailableError or InvalidRequestError."""

    def cancel(self, request_id: str, index: int | None = None) -> None:
        """Stop one choice, or all of them. Unknown ids are no error."""
