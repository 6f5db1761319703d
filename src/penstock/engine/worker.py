"""The engine's process: reads messages between steps, never waits while there is work.

Started by `process.EngineClient` with one end of a socket pair; it ends when the other end closes.
"""

from __future__ import annotations

import select
import signal
import socket
import sys
import time

import msgspec

from penstock.engine.config import EngineConfig
from penstock.engine.messages import (
    Cancel,
    Drain,
    Failed,
    FrameReader,
    FromEngine,
    Loaded,
    Progress,
    Refused,
    Submit,
    ToEngine,
    frame,
    submitted,
)
from penstock.engine.opening import Core, open_core
from penstock.engine.request import TokenEvent
from penstock.errors import InvalidRequestError, ModelError, PenstockError

IDLE_BEAT = 1.0  # seconds between heartbeats when there is nothing to do
_decoder = msgspec.msgpack.Decoder(ToEngine)


class Worker:
    """Owns the core and the socket. One thread: messages, step, emit, again."""

    def __init__(self, core: Core, connection: socket.socket) -> None:
        self._core = core
        self._connection = connection
        self._reader = FrameReader()
        self._deadline: float | None = None  # when draining ends, whatever is left
        self._closed = False
        self._last_beat = 0.0

    def run(self) -> None:
        while not self._closed:
            self._receive(0.0 if self._core.has_work else IDLE_BEAT)
            if self._draining_is_over():
                break
            events = self._core.step() if self._core.has_work else []
            now = time.monotonic()
            if events or now - self._last_beat >= IDLE_BEAT:
                self._emit(events)

    def _emit(self, events: list[TokenEvent]) -> None:
        self._last_beat = time.monotonic()
        self._send(Progress(self._last_beat, self._core.stats(), events))

    def _receive(self, timeout: float) -> None:
        """Take every message that is there; wait for the first one up to `timeout` seconds."""
        while not self._closed and select.select([self._connection], [], [], timeout)[0]:
            data = self._connection.recv(1 << 20)
            if not data:
                self._closed = True
                return
            for body in self._reader.feed(data):
                self._handle(_decoder.decode(body))
            timeout = 0.0

    def _handle(self, message: ToEngine) -> None:
        match message:
            case Submit():
                self._submit(message)
            case Cancel(request_id, index):
                self._emit(self._core.cancel(request_id, index))
            case Drain(seconds):
                self._deadline = time.monotonic() + seconds

    def _submit(self, message: Submit) -> None:
        try:
            self._core.submit(submitted(message))
        except PenstockError as error:
            param = error.param if isinstance(error, InvalidRequestError) else None
            self._send(Refused(message.request_id, type(error).__name__, str(error), param))

    def _draining_is_over(self) -> bool:
        if self._deadline is None:
            return False
        return not self._core.has_work or time.monotonic() >= self._deadline

    def _send(self, message: FromEngine) -> None:
        _send(self._connection, message)


def warm_up(core: Core) -> None:
    """Generate a token, or encode one: only an engine that really does is worth calling loaded."""
    core.submit(core.info.smallest_request("warm-up"))
    while core.has_work:
        for event in core.step():
            if event.finish_reason == "error":
                raise ModelError(f"The model does not compute: {event.error}")


def _send(connection: socket.socket, message: FromEngine) -> None:
    try:
        connection.sendall(frame(message))
    except (BrokenPipeError, ConnectionResetError):
        # The front process is gone, and with it everybody who wanted an answer.
        sys.exit(0)


def main() -> None:
    # Signals sent to everybody (a terminal, a service manager) are for the front process to act on: it
    # drains, then closes the socket or kills.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    config = msgspec.json.decode(sys.argv[2], type=EngineConfig)
    try:
        core = open_core(config)
        warm_up(core)
    except PenstockError as error:
        _send(connection, Failed(type(error).__name__, str(error)))
        sys.exit(2)
    except Exception as error:
        _send(
            connection, Failed("ModelError", f"The engine could not start: {type(error).__name__}: {error}")
        )
        raise
    _send(connection, Loaded(core.info))
    try:
        Worker(core, connection).run()
    except Exception as error:
        _send(
            connection,
            Failed("EngineUnavailableError", f"The engine stopped ({type(error).__name__})."),
        )
        raise


if __name__ == "__main__":
    main()
