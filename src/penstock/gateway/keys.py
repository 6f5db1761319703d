"""API keys: who may call. Keys are kept and compared as hashes, in the same time whatever was sent."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from penstock.protocol.errors import HTTPError


class ApiKeys:
    """With no keys configured every caller may pass; the server then listens on loopback only."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def check(self, authorization: bytes | None) -> str:
        """The tenant that the `Authorization` header names, "" where there are no keys; or raise its 401."""
        if not self._digests:
            return ""
        scheme, _, key = (authorization or b"").partition(b" ")
        given = _digest(key.strip())
        # All are compared: stopping at the first match would show by its time which key it was.
        known = sum(hmac.compare_digest(given, digest) for digest in self._digests)
        if scheme.lower() != b"bearer" or not known:
            message = "The API key is wrong." if authorization else "This server needs an API key."
            raise HTTPError(
                401,
                f"{message} Send it as 'Authorization: Bearer KEY'.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return given.hex()


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
