"""The collector that traces are sent to, by HTTP. Sending waits: it is for a thread."""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
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
        self._line = _Line()
        # Reads the authorities' certificates, which takes milliseconds: once.
        secure = _Secure(self._line, ssl.create_default_context(cafile=certificate))
        self._opener = urllib.request.build_opener(_NoRedirects(), _Plain(self._line), secure)

    def send(self, body: bytes) -> None:
        """Raises UndeliveredError."""
        headers = self._headers
        if self._compressed:
            body, headers = gzip.compress(body, 1), {**headers, "Content-Encoding": "gzip"}
        request = urllib.request.Request(self.url, body, headers, method="POST")
        try:
            # Whatever else it says in its answer, for however long, it has taken what was sent.
            with self._line.for_at_most(self._timeout), self._opener.open(request, timeout=self._timeout):
                if self._line.cut:  # headers that end in the middle are taken for all there are
                    raise TimeoutError
        except urllib.error.HTTPError as error:
            with error:
                raise UndeliveredError(f"status {error.code}", later=error.code in _LATER) from None
        except (OSError, ValueError, HTTPException) as error:  # nobody there, TLS, a broken answer
            why = getattr(error, "reason", None) or error
            said = (
                f"no answer within {self._timeout:g} s" if self._line.cut else f"{type(why).__name__}: {why}"
            )
            raise UndeliveredError(said, later=True) from None


class _Line:
    """The connection under way. It is cut after a while, however busy it seems: timeouts of sockets begin
    anew with every byte."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self.cut = False

    @contextlib.contextmanager
    def for_at_most(self, seconds: float) -> Iterator[None]:
        self._socket, self.cut = None, False
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def connected(self, connection: HTTPConnection) -> None:
        self._socket = connection.sock
        if self.cut:
            self._cut()

    def _cut(self) -> None:
        self.cut = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, line: _Line) -> None:
        super().__init__()
        self._line = line

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        line = self._line

        class Connection(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                line.connected(self)

        return self.do_open(Connection, request)


class _Secure(urllib.request.HTTPSHandler):
    def __init__(self, line: _Line, context: ssl.SSLContext) -> None:
        super().__init__()
        self._line = line
        self._trusting = context

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        line = self._line

        class Connection(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                line.connected(self)

        return self.do_open(Connection, request, context=self._trusting)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would be followed without the body, and its answer taken for a success."""

    def redirect_request(self, *args: object, **named: object) -> None:
        return None
