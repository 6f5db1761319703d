"""The collector that traces are sent to, by HTTP. Sending waits: it is for a thread."""

from __future__ import annotations

import gzip
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Final

_LATER: Final = frozenset({408, 429, 502, 503, 504})  # the same may be taken another time


class UndeliveredError(Exception):
    """The collector did not take what was sent. `later`: it may another time."""

    def __init__(self, why: str, *, later: bool) -> None:
        super().__init__(why)
        self.later = later


class Collector:
    """Where spans go. `certificate`: a file of authorities to trust in place of the system's."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        compressed: bool = False,
        certificate: str | None = None,
        timeout: float = 10.0,  # seconds
    ) -> None:
        self.url = url
        self._headers = {**headers, "Content-Type": "application/x-protobuf"}
        self._compressed = compressed
        self._timeout = timeout
        # Reads the authorities' certificates, which takes milliseconds: once.
        secure = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=certificate))
        self._opener = urllib.request.build_opener(_NoRedirects(), secure)

    def send(self, body: bytes) -> None:
        """Raises UndeliveredError."""
        headers = self._headers
        if self._compressed:
            body, headers = gzip.compress(body, 1), {**headers, "Content-Encoding": "gzip"}
        request = urllib.request.Request(self.url, body, headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise UndeliveredError(f"status {error.code}", later=error.code in _LATER) from None
        except (OSError, ValueError, HTTPException) as error:  # nobody there, TLS, a broken answer
            why = getattr(error, "reason", None) or error
            raise UndeliveredError(f"{type(why).__name__}: {why}", later=True) from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would be followed without the body, and its answer taken for a success."""

    def redirect_request(self, *args: object, **named: object) -> None:
        return None
