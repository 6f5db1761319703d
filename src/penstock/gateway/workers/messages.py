"""What a supervisor and its front processes say to each other: lines of JSON over their pipes."""

from __future__ import annotations

import msgspec

from penstock.config import Settings

BEAT_SECONDS = 1.0


class Begin(msgspec.Struct, tag=True, frozen=True):
    """Serve with these settings. `sockets`: the folder of everything that the processes share; `locked`: the
    store has had keys, so that callers need one even if it is lost."""

    number: int  # of this process, from 0
    settings: Settings
    sockets: str
    locked: bool


class Reload(msgspec.Struct, tag=True, frozen=True):
    settings: Settings


class Ready(msgspec.Struct, tag=True, frozen=True):
    """It answers requests."""


class Beat(msgspec.Struct, tag=True, frozen=True):
    """It is not stuck; said every `BEAT_SECONDS` once it is ready."""


class Failed(msgspec.Struct, tag=True, frozen=True):
    """It cannot serve; the message is a sentence."""

    message: str


ToWorker = Begin | Reload
FromWorker = Ready | Beat | Failed

to_worker = msgspec.json.Decoder(ToWorker)
from_worker = msgspec.json.Decoder(FromWorker)


def line(message: ToWorker | FromWorker) -> bytes:
    """JSON escapes line breaks, so a message is always one line."""
    return msgspec.json.encode(message) + b"\n"
