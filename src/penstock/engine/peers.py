"""The other ends of the engine's sockets: its owner, and further front processes that attach to it.

Nothing here waits: what a peer does not read is kept for it, within a bound, while the engine goes on.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.engine.messages import FrameReader, FromEngine, frame

MAX_UNREAD = 32 << 20  # bytes an attached peer may leave unread before it is dropped
MAX_PEERS = 256
READ_SIZE = 1 << 20  # bytes
LAST_WORDS = 2.0  # seconds for what is still unsent when the engine ends
# Names of attached peers' requests begin with this; the owner's never do.
MARK = "\0"
_CREDENTIALS = struct.Struct("iII")  # SO_PEERCRED: process, user, group


class Peer:
    """One connection. `open` counts the unfinished choices of each request it has running here."""

    def __init__(self, connection: socket.socket, prefix: str = "") -> None:
        connection.setblocking(False)
        self.connection = connection
        self.prefix = prefix  # of its requests' names inside the engine; the owner has none
        self.open: dict[str, int] = {}
        self.closed = False
        self.last_beat = 0.0  # seconds, monotonic
        self._reader = FrameReader()
        self._unsent = bytearray()

    @property
    def unsent(self) -> int:
        """Bytes that the peer has not taken yet."""
        return len(self._unsent)

    def receive(self) -> list[bytes]:
        """The frames that have arrived; raises ValueError for what is none."""
        try:
            data = self.connection.recv(READ_SIZE)
        except BlockingIOError:
            return []
        except ConnectionError:
            data = b""
        if not data:
            self.closed = True
            return []
        return self._reader.feed(data)

    def send(self, message: FromEngine) -> None:
        data = frame(message)
        if not self._unsent:
            data = data[self._sent(data) :]
        self._unsent += data
        # The owner cannot be dropped, and need not be: it is sent no more than it has asked for.
        if self.prefix and len(self._unsent) > MAX_UNREAD:
            self.closed = True

    def flush(self) -> None:
        del self._unsent[: self._sent(self._unsent)]

    def finish(self, deadline: float) -> None:
        """Send the rest, however long it takes the peer to read it, but no longer than to the deadline."""
        if self._unsent and not self.closed:
            with contextlib.suppress(OSError):
                self.connection.settimeout(max(0.001, deadline - time.monotonic()))
                self.connection.sendall(self._unsent)
        self.connection.close()

    def _sent(self, data: bytes | bytearray) -> int:
        if self.closed:
            return len(data)
        try:
            return self.connection.send(data)
        except BlockingIOError:
            return 0
        except ConnectionError:
            self.closed = True
            return len(data)


class Peers:
    """All connections of an engine: the owner's, and those of its listening socket."""

    def __init__(self, owner: socket.socket, path: Path | None = None) -> None:
        self.owner = Peer(owner)
        self.attached: dict[str, Peer] = {}  # by prefix
        self._selector = selectors.DefaultSelector()
        self._selector.register(owner, selectors.EVENT_READ, self.owner)
        self._listener = None if path is None else _listen(path)
        self._path = path
        self._number = 0
        if self._listener is not None:
            self._selector.register(self._listener, selectors.EVENT_READ)

    def __iter__(self) -> Iterator[Peer]:
        yield self.owner
        yield from self.attached.values()

    def wait(self, timeout: float) -> tuple[list[Peer], list[Peer]]:
        """Peers that have sent something, and new ones, once there are any or `timeout` seconds are over."""
        readable, new = [], []
        for key, events in self._selector.select(timeout):
            peer: Peer | None = key.data
            if peer is None:
                new += self._accept()
                continue
            if events & selectors.EVENT_WRITE:
                peer.flush()
                self.watch(peer)
            if events & selectors.EVENT_READ:
                readable.append(peer)
        return readable, new

    def send(self, peer: Peer, message: FromEngine) -> None:
        if peer.closed:
            return
        unsent = peer.unsent
        peer.send(message)
        if bool(unsent) != bool(peer.unsent):
            self.watch(peer)

    def watch(self, peer: Peer) -> None:
        """Wake up for what the peer says, and for its readiness to read if something is left for it."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.unsent else 0)
        self._selector.modify(peer.connection, events, peer)

    def drop(self, peer: Peer) -> None:
        """Let go of an attached peer."""
        self._selector.unregister(peer.connection)
        del self.attached[peer.prefix]
        peer.connection.close()

    def close(self) -> None:
        """Say the last words to everybody, and leave."""
        deadline = time.monotonic() + LAST_WORDS
        self._selector.close()
        for peer in self:
            peer.finish(deadline)
        if self._listener is not None and self._path is not None:
            self._listener.close()
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _accept(self) -> list[Peer]:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return []  # it has given up already
        if len(self.attached) >= MAX_PEERS or other_end(connection)[1] not in (os.geteuid(), 0):
            connection.close()
            return []
        self._number += 1
        peer = Peer(connection, f"{MARK}{self._number}{MARK}")
        self.attached[peer.prefix] = peer
        self._selector.register(connection, selectors.EVENT_READ, peer)
        return [peer]


def _listen(path: Path) -> socket.socket:
    """Listen on a path, for this user only. What an earlier process left there is replaced."""
    listener = socket.socket(socket.AF_UNIX)
    passing = path.with_name(f"{path.name}.{os.getpid()}")
    mask = os.umask(0o177)
    try:
        listener.bind(str(passing))
    finally:
        os.umask(mask)
    listener.listen(MAX_PEERS)
    listener.setblocking(False)
    # Only now, when connections are taken: whoever finds the path can attach.
    passing.rename(path)
    return listener


def other_end(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end of a Unix socket, as the kernel says."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(credentials)
    return process, user
