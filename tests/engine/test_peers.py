"""What the engine keeps for the other ends of its sockets, while nobody waits for anybody."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import msgspec
import pytest

from penstock.engine import peers
from penstock.engine.messages import FrameReader, FromEngine, Progress
from penstock.engine.peers import Peers
from penstock.engine.request import EngineStats

STATS = EngineStats()


def test_a_peer_that_reads_nothing_is_dropped_once_too_much_is_kept_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "MAX_UNREAD", 1 << 20)
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as visitor, ours:
        table = Peers(theirs, Path(folder) / "a.sock")
        visitor.connect(f"{folder}/a.sock")
        _, (peer,) = table.wait(5.0)
        progress = Progress(0.0, STATS, [])
        sent = 0
        while not peer.closed:
            table.send(peer, progress)
            sent += 1
            assert peer.unsent <= (1 << 20) + 1000
        assert sent > 1000
        table.drop(peer)
        table.close()


def test_what_a_slow_peer_was_sent_arrives_whole_and_in_order() -> None:
    ours, theirs = socket.socketpair()
    table = Peers(theirs)
    count = 5000
    for at in range(count):
        table.send(table.owner, Progress(float(at), STATS, []))
    assert table.owner.unsent > 0
    reader, found = FrameReader(), []
    while table.owner.unsent:
        found += [msgspec.msgpack.decode(body, type=FromEngine) for body in reader.feed(ours.recv(50_000))]
        table.wait(0.0)
    table.close()
    while data := ours.recv(1 << 20):
        found += [msgspec.msgpack.decode(body, type=FromEngine) for body in reader.feed(data)]
    assert [message.at for message in found] == [float(at) for at in range(count)]
    ours.close()
