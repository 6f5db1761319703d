"""Streams of Responses and Messages: events with names, which end with one of them and not with `[DONE]`.

Pure, as `relay_stream` is: bytes in, bytes and tokens out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from penstock.gateway.backends.relay_errors import failed, garbage, words
from penstock.gateway.backends.relay_names import Renaming
from penstock.gateway.backends.relay_stream import MAX_EVENT_BYTES
from penstock.gateway.backends.relay_usage import Reported
from penstock.gateway.exchange import with_charges
from penstock.protocol.errors import HTTPError
from penstock.protocol.shapes import UsageCount

_LAST: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "message_stop"}
)
# Errors of the stream itself, by what Messages calls them; Responses gives codes of its own.
_STATUSES: Final = {"invalid_request_error": 400, "rate_limit_error": 429, "overloaded_error": 529}


class _Inner(msgspec.Struct):
    usage: Reported | None = None


class _Event(msgspec.Struct):
    type: str = ""
    usage: Reported | None = None
    response: _Inner | None = None
    message: msgspec.Raw = msgspec.Raw(b"")  # an object when a message starts, a text in an error


class _Holder(msgspec.Struct):
    response: msgspec.Raw = msgspec.Raw(b"")


_event: Final = msgspec.json.Decoder(_Event).decode
_inner: Final = msgspec.json.Decoder(_Inner).decode
_holder: Final = msgspec.json.Decoder(_Holder).decode


class NamedStream:
    """One stream. After each `feed`: `done` when its last event has come, `error` when the server failed."""

    __slots__ = ("_charged", "_pending", "_prompt", "_rename", "counted", "done", "error", "names", "usage")

    def __init__(
        self, *, name: str, names: dict[str, str], prompt: int, charged: Callable[[UsageCount], None]
    ) -> None:
        """`prompt`: its tokens, as far as we know; used if the server does not tell."""
        self._prompt = prompt
        self._rename = Renaming(name)
        self._charged = charged
        self._pending = b""
        self.names = names
        self.counted = 0
        self.usage: UsageCount | None = None
        self.done = False
        self.error: HTTPError | None = None

    def feed(self, data: bytes) -> tuple[bytes, int]:
        data = (self._pending + data).replace(b"\r\n", b"\n")
        whole, blank, self._pending = data.rpartition(b"\n\n")
        if len(self._pending) > MAX_EVENT_BYTES:
            self.error = garbage(f"an event has more than {MAX_EVENT_BYTES} bytes")
        if not blank:
            return b"", 0
        before = self.counted
        out = []
        for event in whole.split(b"\n\n"):
            changed = self._read(event)
            if self.error is not None:
                break
            out.append(changed + b"\n\n")
            if self.done:
                break
        return self._rename(b"".join(out)), self.counted - before

    def close(self) -> tuple[bytes, int]:
        if not self.done and self.error is None:
            self.error = garbage("its stream broke off")
        return b"", 0

    def _read(self, event: bytes) -> bytes:
        """What the client gets of it."""
        lines = event.split(b"\n")
        payload = b"\n".join(line[5:].lstrip(b" ") for line in lines if line.startswith(b"data:"))
        if not payload or payload == b"[DONE]":
            return event  # a comment, or a mark that some servers add though this kind of stream has none
        try:
            found = _event(payload)
            if found.type == "error":
                self._fail(payload)
                return b""
            self._note(found)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.error = garbage("an event of its stream is not the JSON of an event")
            return b""
        if found.type in _LAST:
            self.done = True
        if self.usage is not None and (found.type == "message_delta" or (self.done and found.response)):
            return event.replace(payload, self._with_charges(payload, found))
        return event

    def _note(self, found: _Event) -> None:
        reported = found.usage
        if found.response is not None:
            reported = found.response.usage
        elif found.type == "message_start":
            reported = _inner(found.message).usage
        if reported is not None:
            usage = reported.count(UsageCount(self._prompt, self.counted))
            if self.usage is not None and not reported.prompt:  # the end of a message tells only its output
                usage.prompt, usage.cached = self.usage.prompt, self.usage.cached
            self.usage = usage
            # A message starts with a first count that is none of the delivered text's.
            if found.type != "message_start":
                usage.completion = self.counted = max(usage.completion, self.counted)
        elif found.type.endswith("delta"):
            self.counted += 1

    def _with_charges(self, payload: bytes, found: _Event) -> bytes:
        assert self.usage is not None
        self._charged(self.usage)
        if found.response is None:
            return with_charges(payload, self.usage)
        whole = bytes(_holder(payload).response)
        return payload.replace(whole, with_charges(whole, self.usage))

    def _fail(self, payload: bytes) -> None:
        said = words(msgspec.json.decode(payload))
        self.error = failed(_STATUSES.get(said.type, 500), said, self.names)
