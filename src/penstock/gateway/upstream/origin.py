"""A server, by its URL: connections to it are kept, reused, watched and given up."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from penstock.config.values import UnfitError, parse_url
from penstock.errors import ConfigError
from penstock.gateway.upstream.connection import Connection
from penstock.gateway.upstream.errors import UpstreamError
from penstock.gateway.upstream.head import PATH
from penstock.gateway.upstream.response import Response

# Below the five seconds after which uvicorn and llama.cpp close an idle connection.
KEEP_ALIVE_SECONDS: Final = 4.0
# A server closes connections that nobody has used for a while. One that resets a connection it has just
# answered on fails with the request itself, and whether to send that again is not for us to say.
STALE_SECONDS: Final = 0.5
_SWEEP_SECONDS: Final = 0.25
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a server may take, in seconds."""

    connect: float = 5.0
    first_byte: float = 600.0  # of a stream's first event, from the request on; else of the whole answer
    idle: float = 60.0  # between pieces of the body


class Origin:
    """Where requests go. `url` may have a path, which all requests' paths are put behind."""

    def __init__(
        self,
        url: str,
        *,
        timeouts: Timeouts | None = None,
        tls: ssl.SSLContext | None = None,
        keep_alive: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        parts = _checked(url)
        self._host = str(parts.hostname)
        self._port = parts.port or _PORTS[parts.scheme]
        self._tls = (tls or _verifying()) if parts.scheme == "https" else None
        self._prefix = parts.path.rstrip("/").encode()
        self._host_line = b"host: " + parts.netloc.encode() + b"\r\n"
        self._timeouts = timeouts or Timeouts()
        self._keep_alive = keep_alive
        limits = (self._timeouts.first_byte, self._timeouts.idle, keep_alive)
        self._sweep_seconds = min(_SWEEP_SECONDS, *(limit / 4 for limit in limits))
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []  # the last used at the end; some of them may have been closed since
        self._sweeper: asyncio.TimerHandle | None = None

    async def request(
        self,
        method: bytes,
        path: bytes,
        headers: bytes = b"",
        body: bytes | None = None,
        *,
        timeout: Timeouts | None = None,  # noqa: ASYNC109 (three of them, watched by one timer)
    ) -> Response:
        """Send a request and wait for the head of its answer. `headers` are what `header_lines` makes.

        Raises UpstreamError. A server may close a connection that was idle just as it is used again; as
        long as nothing of an answer has come, the request is sent once more on a new one.
        """
        data = self._encode(method, path, headers, body)
        limits = timeout or self._timeouts
        connection = self._take()
        if connection is None:
            return await self._ask(await self._connect(limits), data, limits)
        idle = connection.loop.time() - connection.idle_since
        try:
            return await self._ask(connection, data, limits)
        except UpstreamError as error:
            # Otherwise something of an answer came, or we gave up ourselves.
            if error.kind != "reset" or idle < STALE_SECONDS:
                raise
        try:
            fresh = await self._connect(limits)
        except UpstreamError as error:
            error.lost = True
            raise
        return await self._ask(fresh, data, limits)

    def close(self) -> None:
        """Hang up on everything."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in tuple(self._connections):
            connection.fail(
                UpstreamError("closed_early", "The gateway has closed its connections to the server.")
            )
        self._idle.clear()

    async def _ask(self, connection: Connection, data: bytes, limits: Timeouts) -> Response:
        response = connection.send(data, limits.first_byte, limits.idle)
        while not response.status:
            if response.error is not None:
                raise response.error
            await response.wait()
        return response

    def _encode(self, method: bytes, path: bytes, headers: bytes, body: bytes | None) -> bytes:
        if PATH.fullmatch(path) is None:
            raise ValueError(f"not a path: {path!r}")
        head = b"%b %b%b HTTP/1.1\r\n%b%b" % (method, self._prefix, path, self._host_line, headers)
        if body is None:
            return head + b"\r\n"
        return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)

    # ------------------------------------------------------------------ connections

    def _take(self) -> Connection | None:
        """The connection used last: it is the least likely to have been closed by the server."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if not connection.closed:
                if connection.loop.time() - connection.idle_since < self._keep_alive:
                    return connection
                connection.abort()
        return None

    def put_back(self, connection: Connection) -> None:
        connection.idle_since = connection.loop.time()
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)

    async def _connect(self, limits: Timeouts) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limits.connect):
                _, connection = await loop.create_connection(
                    lambda: Connection(self, loop),
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls is not None else None,
                )
        except TimeoutError:
            message = f"The server did not accept a connection within {limits.connect:g} seconds."
            raise UpstreamError("timeout", message, detail=self._address) from None
        except (socket.gaierror, UnicodeError) as error:  # the latter for what can be no name at all
            message = "The server's name cannot be resolved."
            raise UpstreamError("unresolved", message, detail=f"{self._address}: {error}") from None
        except ssl.SSLError as error:
            message = "A secure connection to the server could not be made."
            raise UpstreamError("tls", message, detail=f"{self._address}: {error}") from None
        except OSError as error:
            message = "The server does not accept connections."
            raise UpstreamError("refused", message, detail=f"{self._address}: {error}") from None
        self._connections.add(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._sweep_seconds, self._sweep)
        return connection

    @property
    def _address(self) -> str:
        return f"{self._host}:{self._port}"

    # ------------------------------------------------------------------ timeouts

    def _sweep(self) -> None:
        """One timer for all connections; a timer each would cost more than the request it guards."""
        self._sweeper = None
        if not self._connections:
            self._idle.clear()
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        kept = []
        for connection in self._idle:
            if not connection.closed and now - connection.idle_since >= self._keep_alive:
                connection.abort()
            elif not connection.closed:
                kept.append(connection)
        self._idle = kept
        for connection in tuple(self._connections):
            connection.check(now)
        self._sweeper = loop.call_later(self._sweep_seconds, self._sweep)


def _checked(url: str) -> SplitResult:
    """As configurations and sources of addresses check it too."""
    try:
        return urlsplit(parse_url(url))
    except UnfitError as error:
        what = repr(url) if error.quote else "What was given"
        raise ConfigError(f"{what} is not the URL of a server: it {error}.") from None
    except ValueError:
        raise ConfigError(f"{url!r} is not the URL of a server; write http://host:port.") from None


def _verifying() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
