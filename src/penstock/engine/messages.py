"""What front processes and the engine's process say to each other: msgpack of typed structs.

A frame is a 4-byte little-endian length and that many bytes. No pickle, no code.
"""

from __future__ import annotations

import struct

import msgspec

from penstock.engine.config import EngineInfo
from penstock.engine.request import EngineStats, Request, TokenEvent
from penstock.errors import InvalidRequestError

MAX_FRAME = 64 << 20  # bytes; a longer one is a broken peer
_LENGTH = struct.Struct("<I")


class Submit(msgspec.Struct, tag=True, frozen=True):
    request_id: str
    request: msgspec.Raw  # a Request, decoded apart so that a bad one can be refused by its id


class Cancel(msgspec.Struct, tag=True, frozen=True):
    request_id: str
    index: int | None = None


class Drain(msgspec.Struct, tag=True, frozen=True):
    """Finish what is accepted, for at most `seconds`, then end."""

    seconds: float


class Loaded(msgspec.Struct, tag=True, frozen=True):
    """The engine is ready; the first message to everybody who connects."""

    info: EngineInfo
    max_open: int = 0  # choices the engine holds, running and waiting


class Failed(msgspec.Struct, tag=True, frozen=True):
    """The engine cannot start or go on. `kind` is the error's class name."""

    kind: str
    message: str
    out_of_memory: bool = False  # for want of it, on the device or the machine


class Refused(msgspec.Struct, tag=True, frozen=True):
    """A request that was not accepted."""

    request_id: str
    kind: str
    message: str
    param: str | None = None


class Progress(msgspec.Struct, tag=True, frozen=True):
    """The tokens of a step; without any, once a second all the same: the loop's heartbeat."""

    at: float  # seconds on the machine's monotonic clock
    stats: EngineStats
    events: list[TokenEvent] = []


ToEngine = Submit | Cancel | Drain
FromEngine = Loaded | Failed | Refused | Progress

_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(Request)


def submit(request: Request) -> Submit:
    return Submit(request.id, msgspec.Raw(_encoder.encode(request)))


def submitted(message: Submit) -> Request:
    """The request, or InvalidRequestError if a field is not of its type."""
    try:
        return _request_decoder.decode(message.request)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"The request cannot be read: {error}.") from None


def frame(message: ToEngine | FromEngine) -> bytes:
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME:
        raise InvalidRequestError(f"The request has {len(body)} bytes; at most {MAX_FRAME} can be sent.")
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Bytes in, whole frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        frames, at = [], 0
        while len(self._buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, at)
            if length > MAX_FRAME:
                raise ValueError(f"a frame of {length} bytes exceeds {MAX_FRAME}")
            end = at + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[at + _LENGTH.size : end]))
            at = end
        del self._buffer[:at]
        return frames
