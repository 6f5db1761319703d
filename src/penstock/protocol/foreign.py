"""What a server says that does not keep to the protocol it is spoken to in."""

from __future__ import annotations

from penstock.errors import PenstockError


class ForeignAnswerError(PenstockError):
    """A server's answer is not what its protocol says; the sentence is for the log and the client."""
