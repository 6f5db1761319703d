"""The client against servers that fail: each failure has its kind, ends soon, and keeps nothing."""

from __future__ import annotations

import asyncio
import socket

import pytest

from penstock.gateway.upstream import FaultKind, Origin, Timeouts, UpstreamError
from penstock.gateway.upstream.connection import MAX_HEAD_BYTES
from tests.gateway.upstream.raw import Handler, Peer, RawServer, chunked, once, plain, without_connections

LIMIT = 1000
QUICK = Timeouts(connect=0.2, first_byte=0.1, idle=0.1)
HEAD = b"HTTP/1.1 200 OK\r\n"


async def fault_of(handler: Handler, *, timeouts: Timeouts | None = None) -> UpstreamError:
    """The error of one request, after checking that no connection is left."""
    async with RawServer(handler) as server:
        origin = Origin(server.url, timeouts=timeouts)
        with pytest.raises(UpstreamError) as caught:
            await (await origin.request(b"POST", b"/", b"", b"{}")).read(LIMIT)
        await asyncio.sleep(0)
        # What is too large but has come whole leaves a connection that is as good as before.
        assert not origin._connections or caught.value.kind == "too_large"
        assert server.url.removeprefix("http://") not in str(caught.value)
        origin.close()
        return caught.value


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(b"\x16\x03\x01garbage", "garbage", id="no status line"),
        pytest.param(b"HTTP/9.9 200 OK\r\n\r\n", "garbage", id="unknown version"),
        pytest.param(b"HTTP/1.1 ABC\r\n\r\n", "garbage", id="no status"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", "garbage", id="another protocol"),
        pytest.param(
            b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "garbage", id="101"
        ),
        pytest.param(HEAD + b"content-length: -1\r\n\r\n", "garbage", id="negative length"),
        pytest.param(HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n", "garbage", id="two lengths"),
        pytest.param(HEAD + b"content-length: 99999999999999999999999\r\n\r\n", "garbage", id="overflow"),
        pytest.param(
            HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
            "garbage",
            id="length and chunks",
        ),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\nxyz\r\n", "garbage", id="bad chunk size"),
        pytest.param(
            HEAD + b"transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
            "garbage",
            id="huge chunk size",
        ),
        pytest.param(HEAD + b"bad header\r\n\r\n", "garbage", id="no colon"),
        pytest.param(b"", "reset", id="nothing"),
        pytest.param(b"HTTP/1.1 200", "closed_early", id="half a status line"),
        pytest.param(HEAD + b"content-type: a", "closed_early", id="half a head"),
        pytest.param(HEAD + b"content-length: 10\r\n\r\nabc", "closed_early", id="too few bytes"),
        pytest.param(chunked(b"abc", end=b""), "closed_early", id="no last chunk"),
        pytest.param(chunked(b"abc", end=b"5\r\nab"), "closed_early", id="half a chunk"),
        pytest.param(chunked(b"abc", end=b"0\r\nx: y"), "closed_early", id="half a trailer"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", "closed_early", id="100 and nothing after"),
        pytest.param(plain(b"x" * (LIMIT + 1)), "too_large", id="declared too large"),
        pytest.param(chunked(*[b"x" * 300] * 4), "too_large", id="grown too large"),
        pytest.param(
            b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * (LIMIT + 1), "too_large", id="too large until close"
        ),
    ],
)
async def test_a_wrong_answer_has_its_kind(answer: bytes, kind: FaultKind) -> None:
    assert (await fault_of(once(answer))).kind == kind


async def test_what_came_before_a_broken_end_is_given_first() -> None:
    async with RawServer(once(chunked(b"one", b"two", end=b""))) as server:
        origin = Origin(server.url)
        response = await origin.request(b"GET", b"/")
        got = b""
        while len(got) < 6:
            got += await response.chunk()
        assert got == b"onetwo"
        with pytest.raises(UpstreamError) as caught:
            await response.chunk()
        assert caught.value.kind == "closed_early"
        origin.close()


@pytest.mark.parametrize("start", [HEAD, HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"])
async def test_headers_and_trailers_without_end_are_cut_off(start: bytes) -> None:
    sent = 0

    async def handler(peer: Peer) -> None:
        nonlocal sent
        await peer.asked()
        await peer.send(start)
        while True:
            await peer.send(b"x-more: " + b"y" * 1000 + b"\r\n")
            sent += 1010

    assert (await fault_of(handler)).kind == "garbage"
    assert sent < 100 * MAX_HEAD_BYTES


async def test_informational_answers_without_end_are_cut_off() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        while True:
            await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    assert (await fault_of(handler)).kind == "garbage"


async def test_a_reset_in_the_middle_of_an_answer_is_a_broken_answer() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(b"HTTP/1.0 200 OK\r\n\r\nabc")
        await asyncio.sleep(0.01)
        peer.reset()

    # Without a length a clean close is the end; a reset never is. The transport may report either.
    async with RawServer(handler) as server:
        origin = Origin(server.url)
        with await origin.request(b"GET", b"/") as response:
            assert await response.chunk() == b"abc"
        origin.close()


async def test_a_second_answer_that_nobody_asked_for_is_never_the_next_ones() -> None:
    evil = plain(b"for you") + plain(b"for somebody else")

    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(evil if server.connections == 1 else plain(b"right"))
        await peer.gone()

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        bodies = []
        for _ in range(2):
            with await origin.request(b"GET", b"/") as response:
                bodies.append(await response.read(LIMIT))
        assert bodies == [b"for you", b"right"]
        origin.close()


async def test_what_an_idle_connection_says_closes_it() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(plain(b"%d" % server.connections))
        await asyncio.sleep(0.01)
        await peer.send(plain(b"late"))
        await peer.gone()

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        for number in (b"1", b"2"):
            with await origin.request(b"GET", b"/") as response:
                assert await response.read(LIMIT) == number
            await without_connections(origin)
        origin.close()


async def test_garbage_after_an_answer_does_not_spoil_the_answer() -> None:
    async with RawServer(once(plain(b"fine") + b"\x00\x01garbage")) as server:
        origin = Origin(server.url)
        with await origin.request(b"GET", b"/") as response:
            assert await response.read(LIMIT) == b"fine"
        assert not origin._connections
        origin.close()


# ---------------------------------------------------------------------- time


async def silent(peer: Peer) -> None:
    await peer.asked()
    await peer.gone()


async def test_a_server_that_says_nothing_is_given_up() -> None:
    error = await fault_of(silent, timeouts=QUICK)
    assert error.kind == "timeout"
    assert str(error) == "The server has sent no answer for 0.1 seconds."


async def test_a_head_alone_does_not_count_as_a_beginning() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        await peer.gone()

    error = await fault_of(handler, timeouts=Timeouts(first_byte=0.1, idle=60))
    assert str(error) == "The server has sent no answer for 0.1 seconds."


async def test_a_server_that_stops_in_the_middle_is_given_up() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(HEAD + b"content-length: 10\r\n\r\nabc")
        await peer.gone()

    error = await fault_of(handler, timeouts=Timeouts(first_byte=60, idle=0.1))
    assert error.kind == "timeout"
    assert str(error) == "The server has sent nothing further for 0.1 seconds."


async def test_a_slow_stream_that_keeps_moving_is_not_given_up() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(HEAD + b"content-length: 20\r\n\r\n")
        for _ in range(20):
            await peer.send(b"x")
            await asyncio.sleep(0.1)
        await peer.gone()

    async with RawServer(handler) as server:
        origin = Origin(server.url, timeouts=Timeouts(first_byte=1.5, idle=1.5))
        with await origin.request(b"GET", b"/") as response:
            assert b"".join([piece async for piece in response]) == b"x" * 20
        origin.close()


def dripping(*pieces: bytes) -> Handler:
    """The last piece comes again and again."""

    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(*pieces[:-1])
        while True:
            await peer.send(pieces[-1])
            await asyncio.sleep(0.01)

    return handler


async def test_a_head_that_drips_without_end_is_given_up() -> None:
    error = await fault_of(dripping(HEAD, b"x-more: 1\r\n"), timeouts=Timeouts(first_byte=0.2, idle=60))
    assert error.kind == "timeout"
    assert str(error) == "The server has sent no answer for 0.2 seconds."


async def test_interim_answers_without_end_are_given_up() -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\n"
    error = await fault_of(dripping(interim), timeouts=Timeouts(first_byte=0.2, idle=60))
    assert str(error) == "The server has sent no answer for 0.2 seconds."


async def test_a_whole_answer_that_drips_without_end_is_given_up() -> None:
    pieces = (HEAD + b"content-length: 1000\r\n\r\n", b"x")
    error = await fault_of(dripping(*pieces), timeouts=Timeouts(first_byte=0.2, idle=60))
    assert error.kind == "timeout"
    assert str(error) == "The server has not sent its whole answer in 0.2 seconds."


async def test_one_request_may_have_other_limits_than_the_rest() -> None:
    async with RawServer(silent) as server:
        origin = Origin(server.url)
        with pytest.raises(UpstreamError, match=r"for 0\.1 seconds"):
            await origin.request(b"GET", b"/", timeout=QUICK)
        origin.close()


# ---------------------------------------------------------------------- connecting


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def test_a_port_where_nobody_listens_refuses() -> None:
    origin = Origin(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(UpstreamError) as caught:
        await origin.request(b"GET", b"/")
    assert caught.value.kind == "refused"
    assert "127.0.0.1" not in str(caught.value)
    assert "127.0.0.1" in caught.value.detail


async def test_a_name_without_an_address_is_unresolved() -> None:
    with pytest.raises(UpstreamError) as caught:
        await Origin("http://no-such-host.invalid").request(b"GET", b"/")
    assert caught.value.kind == "unresolved"


async def test_a_full_backlog_is_a_connection_that_takes_too_long() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port = listening.getsockname()[1]
        fillers = []
        for _ in range(4):  # nobody accepts these; the kernel drops what comes after
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
            fillers.append(filler)
        origin = Origin(f"http://127.0.0.1:{port}", timeouts=QUICK)
        with pytest.raises(UpstreamError) as caught:
            await origin.request(b"GET", b"/")
        assert caught.value.kind == "timeout"
        for filler in fillers:
            filler.close()


async def test_a_server_that_speaks_no_tls_cannot_be_asked_securely() -> None:
    async def handler(peer: Peer) -> None:
        await peer.send(plain(b"x", status="400 Bad Request"))

    async with RawServer(handler) as server:
        origin = Origin(server.url.replace("http:", "https:"))
        with pytest.raises(UpstreamError) as caught:
            await origin.request(b"GET", b"/")
        assert caught.value.kind == "tls"
        origin.close()


async def test_a_name_that_can_be_none_has_no_address() -> None:
    origin = Origin(f"http://{'a' * 64}.invalid")
    with pytest.raises(UpstreamError) as caught:
        await origin.request(b"GET", b"/")
    assert caught.value.kind == "unresolved"
