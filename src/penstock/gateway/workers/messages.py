"""What a supervisor and its front processes say to each other: lines of JSON over their pipes."""

from __future__ import annotations

import msgspec

from penstock.config import Settings


class Begin(msgspec.Struct, tag=True, frozen=True):
    """Serve with these settings. `sockets`: the folder of everything that the processes share."""

    number: int  # of this process, from 0
    settings: Settings
    sockets: str


class Reload(msgspec.Struct, tag=True, frozen=True):
    settings: Settings


class Ready(msgspec.Struct, tag=True, frozen=True):
    """It answers requests."""


class Failed(msgspec.Struct, tag=True, frozen=True):
    """It cannot serve; the message is a sentence."""

    message: str


ToWorker = Begin | Reload
FromWorker = Ready | Failed

to_worker = msgspec.json.Decoder(ToWorker)
from_worker = msgspec.json.Decoder(FromWorker)


def line(message: ToWorker | FromWorker) -> bytes:
    """JSON escapes line breaks, so a message is always one line."""
    return msgspec.json.encode(message) + b"\n"
