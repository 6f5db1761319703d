"""The engine's process: reads messages between steps, never waits while there is work.

Started by `process.EngineClient` with one end of a socket pair; it ends when the other end closes. Given a
path, it also listens there, so that further processes can attach and have requests of their own.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec

from penstock import logs
from penstock.engine.config import EngineConfig
from penstock.engine.failures import OutOfDeviceMemory
from penstock.engine.messages import (
    Cancel,
    Drain,
    Failed,
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
from penstock.engine.peers import MARK, Peer, Peers
from penstock.engine.request import Request, TokenEvent
from penstock.errors import EngineUnavailableError, InvalidRequestError, ModelError, PenstockError

IDLE_BEAT = 1.0  # seconds between heartbeats when there is nothing to do
MAX_ROUNDS = 64  # of reading between two steps: who talks without end must not stop the engine
_decoder = msgspec.msgpack.Decoder(ToEngine)


class Worker:
    """Owns the core and the sockets. One thread: messages, step, emit, again.

    A request of an attached peer has that peer's prefix before its name, so that peers can neither collide
    with nor cancel each other's; events lose it again on their way out.
    """

    def __init__(self, core: Core, peers: Peers, max_open: int) -> None:
        self._core = core
        self._peers = peers
        self._max_open = max_open
        self._deadline: float | None = None  # when draining ends, whatever is left
        self._last_beat = 0.0

    def run(self) -> None:
        self._greet(self._peers.owner)
        while not self._peers.owner.closed:
            self._receive(0.0 if self._core.has_work else IDLE_BEAT)
            if self._draining_is_over():
                break
            events = self._core.step() if self._core.has_work else []
            if events or time.monotonic() - self._last_beat >= IDLE_BEAT:
                self._emit(events)
                self._drop_the_closed()

    def _greet(self, peer: Peer) -> None:
        self._peers.send(peer, Loaded(self._core.info, self._max_open))

    def _emit(self, events: list[TokenEvent], asked: Peer | None = None) -> None:
        """Everybody gets their own events; who has none, and did not ask, a beat if one is due."""
        now = self._last_beat = time.monotonic()
        stats = self._core.stats()
        # Where the owner is alone, everything is its own.
        shares = self._shares(events) if self._peers.attached else {"": events}
        for peer in self._peers:
            share = shares.get(peer.prefix, [])
            # No beats pile up for a peer that does not read.
            due = now - peer.last_beat >= IDLE_BEAT / 2 and not peer.unsent
            if share or due or peer is asked:
                peer.last_beat = now
                self._peers.send(peer, Progress(now, stats, share))

    def _shares(self, events: list[TokenEvent]) -> dict[str, list[TokenEvent]]:
        """The events of each peer, by its prefix, under the names it gave its requests."""
        shares: dict[str, list[TokenEvent]] = {}
        for event in events:
            prefix, name = _parted(event.request_id)
            shares.setdefault(prefix, []).append(event)
            peer = self._peers.attached.get(prefix)
            if peer is not None:
                event.request_id = name
                if event.finish_reason is not None:
                    peer.open[name] -= 1
                    if not peer.open[name]:
                        del peer.open[name]
        return shares

    def _receive(self, timeout: float) -> None:
        """Take the messages that are there; wait for the first one up to `timeout` seconds."""
        for _ in range(MAX_ROUNDS):
            readable, new = self._peers.wait(timeout)
            for peer in new:
                self._greet(peer)
            for peer in readable:
                self._read(peer)
            self._drop_the_closed()
            if self._peers.owner.closed or not (readable or new):
                return
            timeout = 0.0

    def _read(self, peer: Peer) -> None:
        try:
            for body in peer.receive():
                if peer.closed:
                    return
                self._handle(peer, _decoder.decode(body))
        except (ValueError, msgspec.MsgspecError):
            # Garbage from the owner ends the engine; from anybody else, their connection.
            if peer is self._peers.owner:
                raise
            peer.closed = True

    def _handle(self, peer: Peer, message: ToEngine) -> None:
        match message:
            case Submit():
                self._submit(peer, message)
            case Cancel(request_id, index):
                self._emit(self._core.cancel(peer.prefix + request_id, index), asked=peer)
            case Drain(seconds):
                if peer is not self._peers.owner:
                    raise ValueError("only the owner ends the engine")
                self._deadline = time.monotonic() + seconds

    def _submit(self, peer: Peer, message: Submit) -> None:
        try:
            request = self._named(peer, submitted(message))
            self._core.submit(request)
        except PenstockError as error:
            param = error.param if isinstance(error, InvalidRequestError) else None
            self._peers.send(peer, Refused(message.request_id, type(error).__name__, str(error), param))
            return
        if peer.prefix:
            peer.open[message.request_id] = request.params.n

    def _named(self, peer: Peer, request: Request) -> Request:
        if not peer.prefix:
            if request.id.startswith(MARK):
                raise InvalidRequestError("A request's id must not begin with a zero character.")
            return request
        if self._deadline is not None:
            raise EngineUnavailableError("The engine is shutting down and takes no new requests.")
        return replace(request, id=peer.prefix + request.id)

    def _drop_the_closed(self) -> None:
        """What a peer that is gone had running is cancelled, and its blocks are free before the next step."""
        for peer in [peer for peer in self._peers.attached.values() if peer.closed]:
            self._peers.drop(peer)
            for name in peer.open:
                self._core.cancel(peer.prefix + name)

    def _draining_is_over(self) -> bool:
        if self._deadline is None:
            return False
        return not self._core.has_work or time.monotonic() >= self._deadline


def _parted(request_id: str) -> tuple[str, str]:
    """The prefix of the peer that a request belongs to, and the name it has there."""
    if not request_id.startswith(MARK):
        return "", request_id
    end = request_id.index(MARK, 1) + 1
    return request_id[:end], request_id[end:]


def warm_up(core: Core) -> None:
    """Generate a token, or encode one: only an engine that really does is worth calling loaded."""
    core.submit(core.info.smallest_request("warm-up"))
    while core.has_work:
        for event in core.step():
            if event.finish_reason == "error":
                raise ModelError(f"The model does not compute: {event.error}")


def _say(connection: socket.socket, message: FromEngine) -> None:
    try:
        connection.sendall(frame(message))
    except (BrokenPipeError, ConnectionResetError):
        # The front process is gone, and with it everybody who wanted an answer.
        sys.exit(0)


def _leave_threads_to_the_model() -> None:
    """torch's own would only be in their way."""
    import torch

    torch.set_num_threads(1)


def main() -> None:
    # Signals sent to everybody (a terminal, a service manager) are for the front process to act on: it
    # drains, then closes the socket or kills.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logs.configure_engine()
    connection = socket.socket(fileno=int(sys.argv[1]))
    config = msgspec.json.decode(sys.argv[2], type=EngineConfig)
    try:
        core = open_core(config)
        if core.info.precision == "int8":
            _leave_threads_to_the_model()
        warm_up(core)
        # What is there now stays for good: looking through it for garbage would hold up steps ever again.
        gc.collect()
        gc.freeze()
        peers = Peers(connection, Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    except PenstockError as error:
        _say(connection, Failed(type(error).__name__, str(error)))
        sys.exit(2)
    except Exception as error:
        _say(connection, Failed("ModelError", f"The engine could not start: {type(error).__name__}: {error}"))
        raise
    with contextlib.closing(peers):
        try:
            Worker(core, peers, config.max_waiting + core.info.max_running).run()
        except Exception as error:
            text = f"The engine stopped ({type(error).__name__})."
            for peer in peers:
                peers.send(peer, Failed("EngineUnavailableError", text, out_of_memory=starved(error)))
            raise


def starved(error: Exception) -> bool:
    """Whether it is for want of memory, on the device or the machine."""
    import torch

    return isinstance(error, MemoryError | torch.OutOfMemoryError | OutOfDeviceMemory)


if __name__ == "__main__":
    main()
