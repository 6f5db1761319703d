"""What can go wrong with a server one asks, as one error with a kind."""

from __future__ import annotations

from typing import Literal

from penstock.errors import PenstockError

FaultKind = Literal[
    "unresolved",  # its name has no address
    "refused",  # nobody listens, or the network does not lead there
    "tls",  # the connection could not be secured
    "timeout",  # it took too long to connect, to begin, or to go on
    "reset",  # the connection ended before anything of an answer came
    "closed_early",  # the answer broke off
    "garbage",  # what came is not HTTP/1.1
    "too_large",  # the answer is larger than the caller takes
]


class UpstreamError(PenstockError):
    """The server did not answer as it should. The sentence is fit for a client: it names no address.

    `detail` is for the log, and may name the address.
    """

    def __init__(self, kind: FaultKind, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.kind: FaultKind = kind
        self.detail = detail
        # The server had the request, and went away with it: perhaps because of it.
        self.lost = kind in ("reset", "closed_early")
