"""W3C trace context: the trace a request belongs to, and what servers it is sent on to are told of it."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.observe.record import RequestRecord

SAMPLED: Final = 0x01
_KEPT: Final = 0x03  # of the flags: sampled, and that the trace's id is random
_PARENT: Final = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?"
)
_STATE: Final = re.compile(rb"[\x20-\x7e]{1,512}")
_RATIO_BITS: Final = 64  # of the trace's id, by which OpenTelemetry's samplers decide alike everywhere


@dataclass(slots=True)
class Trace:
    """Ids are numbers: 128 bits of a trace, 64 of a span, never 0."""

    id: int
    parent: int = 0  # the caller's span; 0: the trace begins here
    flags: int = 0
    state: bytes = b""  # what vendors along the way have added, passed on as it came
    span: int = 0  # the request's own; 0: requests are not traced here, and what the caller said is passed on

    @property
    def sampled(self) -> bool:
        return bool(self.span and self.flags & SAMPLED)


def joined(headers: Mapping[bytes, bytes]) -> Trace | None:
    """The trace of the caller; None: it has none, or not one that anybody could follow."""
    given = headers.get(b"traceparent")
    found = given is not None and _PARENT.fullmatch(given)
    if not found:
        return None
    version, trace, parent, flags, more = found.groups()
    if version == b"00" and more is not None:
        return None
    state = headers.get(b"tracestate", b"")
    return Trace(
        int(trace, 16),
        int(parent, 16),
        int(flags, 16) & _KEPT,
        state if _STATE.fullmatch(state) else b"",
    )


class Sampler:
    """Decides once, where a request comes in. What a caller has decided counts, if it is trusted; else so
    large a share, by the trace's id: other servers with the same share decide alike."""

    def __init__(self, share: float, *, trusting: bool = True) -> None:
        self._bound = round(share * (1 << _RATIO_BITS))
        self._trusting = trusting

    def begin(self, caller: Trace | None) -> Trace:
        """The request's own span, in its caller's trace or one of its own."""
        # Whoever may choose a trace's id also chooses what a share of all ids means.
        if caller is not None and self._trusting:
            caller.span = new_span()
            return caller
        trace = random.getrandbits(128) or 1
        sampled = trace & ((1 << _RATIO_BITS) - 1) < self._bound
        return Trace(trace, flags=SAMPLED if sampled else 0, span=new_span())


class Tally:
    """Requests by what became of their traces, since the server was started. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sent = self.lost = 0

    def add(self, *, sent: int = 0, lost: int = 0) -> None:
        with self._lock:
            self.sent += sent
            self.lost += lost


def new_span() -> int:
    return random.getrandbits(64) or 1


def onward(record: RequestRecord) -> bytes:
    """Header lines for the server that is being asked: its spans belong below the attempt under way."""
    trace = record.trace
    if trace is None:
        return b""
    parent = trace.parent
    if trace.span:
        parent = trace.span
        for phase in reversed(record.phases):
            if phase.name == "attempt":
                parent = phase.span = phase.span or new_span()
                break
    lines = b"traceparent: 00-%032x-%016x-%02x\r\n" % (trace.id, parent, trace.flags)
    return lines + b"tracestate: %b\r\n" % trace.state if trace.state else lines
