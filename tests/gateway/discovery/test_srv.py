"""SRV records, asked of a name server of the test's own that speaks the protocol over UDP and TCP."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.discovery import srv
from penstock.gateway.discovery.srv import answers, name_servers, query

NAME = "_http._tcp.pool.example"


def encoded(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".") if label) + b"\0"


def answer(question: bytes, *targets: tuple[int, str, int], flags: int = 0x8180, extra: bytes = b"") -> bytes:
    """The question's answer; the records' name is a pointer to the question's, as servers write it."""
    head = question[:2] + struct.pack(">5H", flags, 1, len(targets) + bool(extra), 0, 0)
    asked = question[12 : 12 + len(encoded(NAME)) + 4]
    records = [
        b"\xc0\x0c"
        + struct.pack(">HHIH", 33, 1, 30, 6 + len(encoded(host)))
        + struct.pack(">3H", priority, 10, port)
        + encoded(host)
        for priority, host, port in targets
    ]
    return head + asked + extra + b"".join(records)


@contextmanager
def name_server(udp_answer: bytes | None, tcp_answer: bytes | None = None) -> Iterator[int]:
    """Answers every question with these bytes, behind the question's number; gives its port."""
    udp, tcp, port = _listening()
    for listening in (udp, tcp):
        listening.settimeout(10.0)

    def serve() -> None:
        try:
            question, client = udp.recvfrom(4096)
            if udp_answer is not None:
                udp.sendto(question[:2] + udp_answer[2:], client)
            if tcp_answer is not None:
                connection, _ = tcp.accept()
                with connection:
                    asked = connection.recv(4096)[2:]
                    whole = asked[:2] + tcp_answer[2:]
                    connection.sendall(len(whole).to_bytes(2, "big") + whole)
        except OSError:
            pass

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        yield port
    finally:
        udp.close()
        tcp.close()
        serving.join()


def _listening() -> tuple[socket.socket, socket.socket, int]:
    """One port for both; a port that is free for one of them need not be for the other."""
    while True:
        tcp = socket.create_server(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            udp.bind(tcp.getsockname())
        except OSError:
            udp.close()
            tcp.close()
            continue
        return udp, tcp, tcp.getsockname()[1]


QUESTION = query(NAME, 7)


def test_servers_of_the_best_priority_are_found_with_their_ports() -> None:
    targets = [(10, "a.example", 8000), (20, "spare.example", 8000), (10, "b.example", 8001)]
    with name_server(answer(QUESTION, *targets)) as port:
        assert srv._ask("127.0.0.1", NAME, port) == [("a.example", 8000), ("b.example", 8001)]


def test_an_answer_too_large_for_udp_is_asked_for_again_by_tcp() -> None:
    targets = [(10, f"server-{at}.example", 8000 + at) for at in range(300)]
    cut = answer(QUESTION, flags=0x8380)
    with name_server(cut, answer(QUESTION, *targets)) as port:
        assert srv._ask("127.0.0.1", NAME, port) == [(host, port) for _, host, port in targets]


def test_other_records_in_the_answer_are_passed_over() -> None:
    alias = b"\xc0\x0c" + struct.pack(">HHIH", 5, 1, 30, len(encoded("x.example"))) + encoded("x.example")
    found = answers(answer(QUESTION, (1, "a.example", 80), extra=alias), 7)
    assert found == [("a.example", 80)]


def test_a_target_of_no_name_says_that_there_is_no_server() -> None:
    assert answers(answer(QUESTION, (0, "", 0)), 7) == []


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (answer(QUESTION, flags=0x8183), "there is no such name"),
        (answer(QUESTION, flags=0x8182), "the name server says error 2"),
        (answer(QUESTION, (1, "a.example", 80))[:-4], "cannot be read"),
        (answer(QUESTION, extra=b"\xc0\xff"), "cannot be read"),
        (b"\0\x07", "cannot be read"),
    ],
    ids=["no such name", "server failure", "cut", "pointer to itself", "too short"],
)
def test_a_bad_answer_is_an_error(message: bytes, sentence: str) -> None:
    with name_server(message) as port, pytest.raises(OSError, match=sentence):
        srv._ask("127.0.0.1", NAME, port)


def test_an_answer_to_another_question_is_refused() -> None:
    with pytest.raises(OSError, match="another question"):
        answers(answer(QUESTION, (1, "a.example", 80)), 8)


@given(st.binary(max_size=200))
def test_no_bytes_whatever_do_more_than_raise(noise: bytes) -> None:
    message = answer(QUESTION)[:6] + b"\0\5" + answer(QUESTION)[8:] + noise
    with suppress(OSError, struct.error, IndexError, UnicodeDecodeError):
        answers(message, 7)


def test_a_name_server_that_does_not_answer_is_passed_over_for_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "resolv.conf"
    config.write_text("# ours\nsearch example\nnameserver 127.0.0.1\nnameserver ::1 # second\nnameserver\n")
    assert name_servers(config) == ["127.0.0.1", "::1"]
    assert name_servers(tmp_path / "nothing") == []
    asked = []

    def ask(server: str, name: str) -> list[tuple[str, int]]:
        asked.append(server)
        if server == "127.0.0.1":
            raise TimeoutError("timed out")
        return [("a", 80)]

    monkeypatch.setattr(srv, "name_servers", lambda: name_servers(config))
    monkeypatch.setattr(srv, "_ask", ask)
    assert srv.resolve_srv(NAME, 0) == [("a", 80)]
    assert asked == ["127.0.0.1", "::1"]


@pytest.mark.parametrize("name", ["", "a..b", "x" * 64])
def test_what_is_no_name_is_not_asked_for(name: str) -> None:
    with pytest.raises(OSError, match="is not a DNS name"):
        query(name, 1)
