"""The client of an engine in its own process: what the gateway holds. No torch here.

The process that starts an engine owns it: only it drains and ends it, and the engine ends with it. Others
may attach to the path on which it listens, and have requests of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import signal
import socket
import stat
import sys
import time
import uuid
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from penstock import errors, logs
from penstock.engine.config import EngineConfig, EngineInfo
from penstock.engine.messages import (
    Cancel,
    Drain,
    Failed,
    FrameReader,
    FromEngine,
    Loaded,
    Progress,
    Refused,
    ToEngine,
    frame,
    submit,
)
from penstock.engine.peers import other_end
from penstock.engine.request import MAX_PRIORITY, EngineStats, Request, TokenEvent
from penstock.errors import (
    ConfigError,
    EngineUnavailableError,
    InvalidRequestError,
    ModelError,
    PenstockError,
    QueueFullError,
)
from penstock.machine import oom_kills

MAX_UNSENT = 32 << 20  # bytes the engine may leave unread before new requests are refused
KILL_AFTER = 5.0  # seconds between asking the process to end and ending it
MAX_SOCKET_PATH = 107  # bytes, of a unix socket's name; the engine adds its pid while it binds
_decoder = msgspec.msgpack.Decoder(FromEngine)


# Why an engine ended that was not asked to: for want of memory; by somebody's hand; by its keeper's, since it
# did nothing any more; or by a fault of its own.
DeathCause = Literal["out_of_memory", "killed", "stuck", "crashed"]
DEATHS: Final[tuple[DeathCause, ...]] = get_args(DeathCause)


class EventStream:
    """One accepted request: iterate over its events, and close it when done with it.

    Closing early cancels what is left, so leave it to a `with` block:

        with client.submit(request) as events:
            async for event in events: ...
    """

    def __init__(self, client: EngineClient, request: Request) -> None:
        self._client = client
        self._request = request
        self._open_choices = request.params.n
        self._closed = False
        self.events: asyncio.Queue[TokenEvent | PenstockError] = asyncio.Queue()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> TokenEvent:
        if not self._open_choices or self._closed:
            raise StopAsyncIteration
        event = await self.events.get()
        if isinstance(event, PenstockError):
            self._open_choices = 0
            raise _fresh(event)
        if event.finish_reason is not None:
            self._open_choices -= 1
        return event

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._client._close(self._request, unfinished=self._open_choices > 0)

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EngineClient:
    """Starts an engine's process or attaches to one, sends requests, hands each one its events.

    Everything runs on one event loop. Queues of events are bounded by max_tokens of their requests,
    and the number of requests by max_running + max_waiting.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process | None,
        pid: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process  # None: somebody else's
        self.pid = pid
        self._reader = reader
        self._writer = writer
        self._streams: dict[str, EventStream] = {}
        self._open_choices = 0
        self._max_open = 0
        self._failure: PenstockError | None = None
        self._failed = asyncio.Event()
        self._draining = False
        self._receiver: asyncio.Task[None] | None = None
        self._loaded: asyncio.Future[Loaded] = asyncio.get_running_loop().create_future()
        self._info: EngineInfo | None = None
        self.stats = EngineStats()
        self.last_beat = time.monotonic()
        self.cause: DeathCause = "crashed"  # what it died of, once it has
        self._oom_kills = oom_kills()
        self.lost: tuple[str, ...] = ()  # the requests that were open when the engine failed
        self.last_token = 0.0  # when the engine last gave a token or a vector; seconds, monotonic

    @classmethod
    async def start(cls, config: EngineConfig, listen: Path | None = None) -> EngineClient:
        """Returns once the model is loaded and has generated a token; else raises the engine's own error.

        With `listen`, a path in a folder of this user's alone, other processes can attach there.
        """
        try:
            options = [msgspec.json.encode(config).decode()]
        except UnicodeEncodeError:
            raise ConfigError(f"The model's path {config.model!r} is not text; rename it.") from None
        if listen is not None:
            options.append(_checked(listen))
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    # -P: the folder one happens to be in, perhaps a model's, is no place to import from.
                    sys.executable, "-P", "-m", "penstock.engine.worker", str(theirs.fileno()), *options,
                    pass_fds=[theirs.fileno()], stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
                    env={**os.environ, **logs.inherited()},
                )  # fmt: skip
        except BaseException:
            writer.close()
            raise
        client = cls(process, process.pid, reader, writer)
        info = (await client._greeted()).info
        client._max_open = config.max_waiting + info.max_running
        # Its start ended with a token.
        client.last_token = time.monotonic()
        return client

    @classmethod
    async def attach(cls, path: Path) -> EngineClient:
        """Connect to an engine that another process started. Raises EngineUnavailableError."""
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, str(path))
            process, _ = other_end(connection)
            reader, writer = await asyncio.open_connection(sock=connection)
        except OSError as error:
            connection.close()
            why = error.strerror or type(error).__name__
            text = f"The engine cannot be reached ({why}); it is starting or gone."
            raise EngineUnavailableError(text) from None
        except BaseException:
            connection.close()
            raise
        client = cls(None, process, reader, writer)
        client._max_open = (await client._greeted()).max_open
        return client

    async def _greeted(self) -> Loaded:
        self._receiver = asyncio.create_task(self._receive())
        try:
            loaded = await self._loaded
        except BaseException:
            await self.kill()
            raise
        self._info = loaded.info
        return loaded

    @property
    def info(self) -> EngineInfo:
        assert self._info is not None, "start() returns only when the engine is loaded"
        return self._info

    @property
    def alive(self) -> bool:
        return self._failure is None and (self._process is None or self._process.returncode is None)

    @property
    def failure(self) -> PenstockError | None:
        """Why the engine is gone, if it is."""
        return self._failure

    async def failed(self) -> PenstockError:
        """Wait until the engine is gone, and say why."""
        await self._failed.wait()
        assert self._failure is not None
        return self._failure

    @property
    def heartbeat_age(self) -> float:
        """Seconds since the loop last showed that it goes round."""
        return time.monotonic() - self.last_beat

    @property
    def token_age(self) -> float:
        """Seconds since a token or a vector last came."""
        return time.monotonic() - self.last_token

    def submit(self, request: Request) -> EventStream:
        """Send a request, or raise at once: QueueFullError, EngineUnavailableError."""
        if self._failure is not None:
            raise _fresh(self._failure)
        if self._draining:
            raise EngineUnavailableError("The engine is shutting down and takes no new requests.")
        if not isinstance(request.id, str):
            raise InvalidRequestError(f"A request's id must be a string, got {request.id!r}.")
        if request.id in self._streams:
            raise InvalidRequestError(f"A request with the id {request.id!r} is already being served.")
        choices = request.params.n
        if choices > self._max_open:
            raise InvalidRequestError(
                f"n is {choices}, but the engine holds at most {self._max_open} choices.", param="n"
            )
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT:
            raise QueueFullError("The engine has not taken up the requests before this one.")
        if self._open_choices + choices > self._max_open:
            raise QueueFullError(
                f"The engine is full: {self._open_choices} choices are running or waiting, "
                f"and {choices} more would pass the limit of {self._max_open}."
            )
        try:
            message = frame(submit(request))
        except (OverflowError, UnicodeError, TypeError) as error:
            raise InvalidRequestError(f"The request cannot be sent to the engine: {error}.") from None
        stream = EventStream(self, request)
        self._streams[request.id] = stream
        self._open_choices += choices
        self._writer.write(message)
        return stream

    def _close(self, request: Request, *, unfinished: bool) -> None:
        if unfinished:
            self.cancel(request.id)
        del self._streams[request.id]
        self._open_choices -= request.params.n

    def cancel(self, request_id: str, index: int | None = None) -> None:
        """Stop a request, or one of its choices. Unknown ids are no error."""
        if self.alive and request_id in self._streams:
            self._send(Cancel(request_id, index))

    async def probe(self, within: float = 5.0) -> bool:
        """Whether the engine computes a token, in the same loop as everybody's, `within` so many seconds."""
        request = self.info.smallest_request(f"probe-{uuid.uuid4().hex}", priority=-MAX_PRIORITY)
        try:
            async with asyncio.timeout(within):
                with self.submit(request) as events:
                    return all([event.finish_reason != "error" async for event in events])
        except (TimeoutError, PenstockError):
            return False

    async def shutdown(self, drain_seconds: float = 30.0) -> None:
        """Take nothing new, let accepted requests finish for so long, then end the process.

        An attached client only lets go, at once; what it still has running is cancelled.
        """
        self._draining = True
        if self._process is not None and self.alive:
            self._send(Drain(drain_seconds))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), drain_seconds + KILL_AFTER)
        await self.kill()

    async def kill(self) -> None:
        """End the process now; open requests get an error. An attached client lets go."""
        if self._failure is None:
            self.cause = "stuck"  # nobody ends one that works
        if self._process is None:
            self._writer.close()
        else:
            self._kill()
            await self._process.wait()
        if self._receiver is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._receiver
        self._writer.close()

    def _kill(self) -> None:
        # Not through the process object: before it sends a signal it looks whether the process has ended,
        # and if so takes its exit code away from the event loop.
        if self._process is None:
            self._writer.close()
        elif self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    def _send(self, message: ToEngine) -> None:
        # The transport buffers; the engine reads between steps, and what can be outstanding is bounded.
        self._writer.write(frame(message))

    async def _receive(self) -> None:
        reader = FrameReader()
        try:
            while data := await self._reader.read(1 << 20):
                for body in reader.feed(data):
                    self._handle(_decoder.decode(body))
        except ConnectionError:
            pass
        except Exception as error:
            self._fail(
                EngineUnavailableError(f"The engine's messages cannot be read ({type(error).__name__}).")
            )
            self._kill()
        if self._process is None:
            self._fail(EngineUnavailableError("The connection to the engine has closed."))
            return
        code = await self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        if code == -signal.SIGKILL and self._failure is None and self.cause != "stuck":
            self.cause = "out_of_memory" if oom_kills() > self._oom_kills else "killed"
        if self._draining and code == 0:
            self._fail(EngineUnavailableError("The engine has shut down."))
        else:
            self._fail(EngineUnavailableError(f"The engine process ended unexpectedly ({how})."))

    def _handle(self, message: FromEngine) -> None:
        match message:
            case Progress(at, stats, events):
                self.stats, self.last_beat = stats, at
                if any(event.token_ids or event.embedding for event in events):
                    self.last_token = at
                for event in events:
                    self._deliver(event.request_id, event)
            case Refused(request_id, kind, text, param):
                self._deliver(request_id, _error(kind, text, param))
            case Failed(kind, text, out_of_memory):
                if out_of_memory:
                    self.cause = "out_of_memory"
                self._fail(_error(kind, text, None))
            case Loaded():
                self.last_beat = time.monotonic()
                if not self._loaded.done():
                    self._loaded.set_result(message)

    def _deliver(self, request_id: str, item: TokenEvent | PenstockError) -> None:
        stream = self._streams.get(request_id)
        if stream is not None:
            stream.events.put_nowait(item)

    def _fail(self, error: PenstockError) -> None:
        """Everybody still waiting learns why; the first reason is the one that counts."""
        if self._failure is not None:
            return
        self._failure = error
        self.lost = tuple(self._streams)
        self._failed.set()
        if not self._loaded.done():
            self._loaded.set_exception(error)
        for stream in self._streams.values():
            stream.events.put_nowait(error)


def _checked(listen: Path) -> str:
    """The path for an engine's socket, which nobody but this user may reach."""
    path = os.path.abspath(listen)
    longest = MAX_SOCKET_PATH - len(".4194304")  # a pid
    if len(os.fsencode(path)) > longest:
        raise ConfigError(f"The path of the engine's socket is too long, at most {longest} bytes: {path}.")
    folder = os.stat(os.path.dirname(path))
    if folder.st_uid != os.geteuid() or stat.S_IMODE(folder.st_mode) & 0o077:
        text = f"Others can enter the folder of the engine's socket {path}; make it private (mode 700)."
        raise ConfigError(text)
    return path


def _error(kind: str, text: str, param: str | None) -> PenstockError:
    known = getattr(errors, kind, None)
    if not isinstance(known, type) or not issubclass(known, PenstockError):
        return ModelError(text)
    if issubclass(known, errors.InvalidRequestError):
        return known(text, param=param)
    return known(text)


def _fresh(error: PenstockError) -> PenstockError:
    """Raised again and again, one error object would gather the frames of everybody it was raised to."""
    return copy.copy(error)
