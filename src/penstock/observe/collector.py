"""The collector that traces are sent to, by HTTP. Sending waits: it is for a thread."""

from __future__ import annotations

import gzip
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_LATER: Final = frozenset({408, 429, 502, 503, 504})  # the same may be taken another time


class UndeliveredError(Exception):
    """The collector did not take what was sent. `later`: it may another time."""

    def __init__(self, why: str, *, later: bool) -> None:
        super().__init__(why)
        self.later = later


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Where spans go."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 10.0  # seconds
    compressed: bool = False
    certificate: str | None = None  # a file of authorities to trust in place of the system's

    def send(self, body: bytes) -> None:
        """Raises UndeliveredError."""
        headers = {**self.headers, "Content-Type": "application/x-protobuf"}
        if self.compressed:
            body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
        request = urllib.request.Request(self.url, body, headers, method="POST")
        try:
            context = ssl.create_default_context(cafile=self.certificate) if self.certificate else None
            handlers = [_NoRedirects(), *([urllib.request.HTTPSHandler(context=context)] if context else [])]
            with urllib.request.build_opener(*handlers).open(request, timeout=self.timeout) as response:
                response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise UndeliveredError(f"status {error.code}", later=error.code in _LATER) from None
        except (OSError, ValueError) as error:  # nobody there, a name that is none, a broken answer, TLS
            why = getattr(error, "reason", None) or error
            raise UndeliveredError(f"{type(why).__name__}: {why}", later=True) from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would be followed without the body, and its answer taken for a success."""

    def redirect_request(self, *args: object, **named: object) -> None:
        return None
