"""The client against servers that behave, in all the ways HTTP/1.1 allows."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import ConfigError
from penstock.gateway.upstream import Origin, Timeouts, UpstreamError, header_lines
from penstock.gateway.upstream import origin as origin_module
from penstock.gateway.upstream.origin import STALE_SECONDS
from tests.gateway.upstream.raw import Peer, RawServer, always, chunked, once, plain, without_connections

LIMIT = 1 << 20


async def get(origin: Origin, path: bytes = b"/") -> bytes:
    with await origin.request(b"GET", path) as response:
        return await response.read(LIMIT)


async def test_a_request_has_its_line_host_headers_and_body_and_nothing_else() -> None:
    async with RawServer(always(plain(b"yes", server="x"))) as server:
        origin = Origin(server.url + "/base/")
        lines = header_lines([("Authorization", "Bearer k"), ("Content-Type", "application/json")])
        with await origin.request(b"POST", b"/v1/x", lines, b'{"a":1}') as response:
            assert (response.status, response.header(b"server"), await response.read(LIMIT)) == (
                200,
                b"x",
                b"yes",
            )
        origin.close()
    (asked,) = server.requests
    assert asked.line == "POST /base/v1/x HTTP/1.1"
    assert asked.body == b'{"a":1}'
    assert asked.headers == {
        "host": server.url.removeprefix("http://"),
        "authorization": "Bearer k",
        "content-type": "application/json",
        "content-length": "7",
    }


async def test_a_request_without_a_body_has_no_length() -> None:
    async with RawServer(always(plain(b""))) as server:
        origin = Origin(server.url)
        assert await get(origin) == b""
        origin.close()
    assert "content-length" not in server.requests[0].headers


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_an_answer_cut_anywhere_is_the_same_answer(size: int) -> None:
    data = chunked(b"one", b"two" * 10, b"three", end=b"0\r\nX-Trailer: t\r\n\r\n")
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    async with RawServer(always(*pieces)) as server:
        origin = Origin(server.url)
        for _ in range(2):
            assert await get(origin) == b"one" + b"two" * 10 + b"three"
        origin.close()
    assert server.connections == 1


async def test_trailers_are_not_headers_of_this_answer_or_the_next() -> None:
    answers = [chunked(b"x", end=b"0\r\ncontent-type: evil\r\n\r\n"), plain(b"y")]

    async def handler(peer: Peer) -> None:
        for answer in answers:
            await peer.asked()
            await peer.send(answer)
        await peer.gone()

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        for body in (b"x", b"y"):
            with await origin.request(b"GET", b"/") as response:
                assert await response.read(LIMIT) == body
                assert response.header(b"content-type") == b""
        origin.close()
    assert server.connections == 1


async def test_pieces_come_as_soon_as_they_are_sent() -> None:
    go_on = asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await go_on.wait()
        await peer.send(b"3\r\ntwo\r\n0\r\n\r\n")
        await peer.gone()

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        with await origin.request(b"GET", b"/") as response:
            assert await response.chunk() == b"one"
            go_on.set()
            assert await response.chunk() == b"two"
            assert await response.chunk() == b""
            assert await response.chunk() == b""
        origin.close()


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with RawServer(once(b"HTTP/1.0 200 OK\r\n\r\nall of", b" it")) as server:
        origin = Origin(server.url)
        assert await get(origin) == b"all of it"
        assert not origin._connections
        assert await get(origin) == b"all of it"
        origin.close()
    assert server.connections == 2


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_a_status_without_a_body_ends_with_its_head(status: str) -> None:
    async with RawServer(always(f"HTTP/1.1 {status}\r\n\r\n".encode())) as server:
        origin = Origin(server.url)
        assert [await get(origin), await get(origin)] == [b"", b""]
        origin.close()
    assert server.connections == 1


async def test_informational_answers_are_passed_over() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    async with RawServer(always(early, plain(b"final"))) as server:
        origin = Origin(server.url)
        with await origin.request(b"POST", b"/", b"", b"{}") as response:
            assert response.status == 200
            assert response.header(b"link") == b""
            assert await response.read(LIMIT) == b"final"
        origin.close()


async def test_connections_are_kept_and_the_last_used_is_taken_first() -> None:
    async def handler(peer: Peer) -> None:
        number = b"%d" % server.connections
        while True:
            await peer.asked()
            await gate.wait()
            await peer.send(plain(number))

    gate = asyncio.Event()
    async with RawServer(handler) as server:
        origin = Origin(server.url)
        gate.set()
        first = await get(origin)
        gate.clear()
        both = [asyncio.create_task(get(origin)) for _ in range(2)]
        await asyncio.sleep(0.02)
        gate.set()
        assert sorted(await asyncio.gather(*both)) == [b"1", b"2"]
        assert first == b"1"
        again = {await get(origin) for _ in range(5)}
        assert len(again) == 1
        assert server.connections == len(origin._connections) == 2
        origin.close()


async def test_a_connection_idle_for_too_long_is_closed_by_us() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(plain(b"x"))
        await peer.gone()

    async with RawServer(handler) as server:
        origin = Origin(server.url, keep_alive=0.05)
        assert await get(origin) == b"x"
        await asyncio.wait_for(server.hung_up.wait(), 30)
        assert not origin._connections
        origin.close()


async def test_a_connection_that_the_server_asks_to_close_is_not_kept() -> None:
    async with RawServer(always(plain(b"x", connection="close"))) as server:
        origin = Origin(server.url)
        assert await get(origin) == await get(origin) == b"x"
        origin.close()
    assert server.connections == 2


async def test_a_request_that_meets_a_closing_connection_is_sent_once_more_on_a_new_one() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(plain(b"x"))
        if server.connections == 1:
            await peer.asked()
            peer.reset()  # as if the second request had crossed the server's decision to close
        else:
            await peer.gone()

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        assert await get(origin, b"/1") == b"x"
        await asyncio.sleep(STALE_SECONDS)
        assert await get(origin, b"/2") == b"x"
        origin.close()
    assert [asked.line.split()[1] for asked in server.requests] == ["/1", "/2", "/2"]


async def test_a_request_that_ends_a_connection_in_use_is_not_sent_there_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(origin_module, "STALE_SECONDS", 60.0)

    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(plain(b"x"))
        await peer.asked()
        peer.reset()

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        await get(origin)
        with pytest.raises(UpstreamError) as caught:
            await get(origin)
        assert caught.value.kind == "reset"
        origin.close()
    assert len(server.requests) == 2


async def test_a_connection_closed_while_idle_is_not_used_again() -> None:
    async with RawServer(once(plain(b"x"))) as server:
        origin = Origin(server.url)
        for _ in range(3):
            assert await get(origin) == b"x"
            await without_connections(origin)
        origin.close()
    assert len(server.requests) == 3


async def test_a_request_on_a_new_connection_is_never_sent_twice() -> None:
    async with RawServer(once()) as server:
        origin = Origin(server.url)
        with pytest.raises(UpstreamError) as caught:
            await get(origin)
        assert caught.value.kind == "reset"
        origin.close()
    assert len(server.requests) == 1


async def test_a_request_is_not_sent_again_once_something_of_an_answer_came() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(plain(b"x"))
        await peer.asked()
        await peer.send(b"HTTP/1.1 2")

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        await get(origin)
        with pytest.raises(UpstreamError) as caught:
            await get(origin)
        assert caught.value.kind == "closed_early"
        origin.close()
    assert len(server.requests) == 2


async def test_a_slow_consumer_holds_the_server_back() -> None:
    sent = 0
    piece = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"

    async def handler(peer: Peer) -> None:
        nonlocal sent
        await peer.asked()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            await peer.send(piece)
            sent += 1

    async with RawServer(handler) as server:
        origin = Origin(server.url, timeouts=Timeouts(idle=0.1))
        with await origin.request(b"GET", b"/") as response:
            before = -1
            while before != sent:  # until nothing moves any more
                before = sent
                await asyncio.sleep(0.1)
            held = sum(map(len, response.parts))
            assert held < 1 << 20
            # The server is not blamed for our pause, and goes on when it ends.
            async with asyncio.timeout(30):
                while sent == before:
                    await response.chunk()
        origin.close()


async def test_cancelling_the_wait_hangs_up_at_once() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.gone()

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        task = asyncio.create_task(get(origin))
        await server.asked.wait()
        task.cancel()
        await asyncio.wait_for(server.hung_up.wait(), 30)
        assert not origin._connections
        with pytest.raises(asyncio.CancelledError):
            await task
        origin.close()


async def test_cancelling_within_the_body_hangs_up_at_once() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await peer.gone()

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        began = asyncio.Event()

        async def consume() -> None:
            async for _ in await origin.request(b"GET", b"/"):
                began.set()

        task = asyncio.create_task(consume())
        await began.wait()
        task.cancel()
        await asyncio.wait_for(server.hung_up.wait(), 30)
        origin.close()


async def test_leaving_an_answer_half_read_hangs_up() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc")
        await peer.gone()

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        with await origin.request(b"GET", b"/") as response:
            assert await response.chunk() == b"abc"
        await asyncio.wait_for(server.hung_up.wait(), 30)
        assert not origin._connections
        origin.close()


@pytest.mark.parametrize("reused", [False, True])
async def test_closing_the_origin_ends_what_is_under_way(reused: bool) -> None:
    async def handler(peer: Peer) -> None:
        if reused:
            await peer.asked()
            await peer.send(plain(b"x"))
        await peer.asked()
        await peer.gone()

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        if reused:
            await get(origin)
            server.asked.clear()
        task = asyncio.create_task(get(origin))
        await server.asked.wait()
        origin.close()
        with pytest.raises(UpstreamError):
            await task
    assert server.connections == 1


async def test_an_answer_before_the_request_was_taken_is_read_and_its_connection_given_up() -> None:
    async def handler(peer: Peer) -> None:
        await peer.send(plain(b"too big", status="413 Content Too Large"))
        await asyncio.sleep(5)

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        body = b"x" * (32 << 20)  # more than the sockets' buffers hold
        with await origin.request(b"POST", b"/", b"", body) as response:
            assert (response.status, await response.read(LIMIT)) == (413, b"too big")
        assert not origin._connections
        origin.close()


async def test_many_requests_at_once_each_get_their_own_answer() -> None:
    async def handler(peer: Peer) -> None:
        while True:
            asked = await peer.asked()
            await asyncio.sleep(0)
            await peer.send(chunked(asked.body, asked.body))

    async def post(number: int) -> bytes:
        with await origin.request(b"POST", b"/", b"", b"<%d>" % number) as response:
            return await response.read(LIMIT)

    async with RawServer(handler) as server:
        origin = Origin(server.url)
        for _ in range(3):
            bodies = await asyncio.gather(*map(post, range(50)))
            assert bodies == [b"<%d><%d>" % (number, number) for number in range(50)]
        assert server.connections == 50
        origin.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "ftp://a",
        "http://",
        "http://a:0",
        "http://a:99999",
        "http://a/?x=1",
        "http://a/#f",
        "http://a b/",
        "http://a\r\nx: y",
        "http://a?",
        "http://ü.example/",
        "http://a/ü",
        "http://a/\ud800",
    ],
)
def test_what_is_no_url_of_a_server_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the URL of a server"):
        Origin(url)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        Origin("http://me:secret@host/")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a b", "x"),
        ("", "x"),
        ("a:", "x"),
        ("x", "a\r\nb: c"),
        ("x", "a\0"),
        ("Host", "x"),
        ("connection", "close"),
    ],
)
def test_a_header_that_is_more_than_a_header_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError):
        header_lines([(name, value)])


def test_the_value_of_a_refused_header_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        header_lines([("Authorization", "Bearer\nsk-secret")])
    assert "sk-secret" not in str(caught.value)


async def test_a_path_that_would_begin_another_line_is_refused() -> None:
    origin = Origin("http://127.0.0.1:9")
    with pytest.raises(ValueError, match="not a path"):
        await origin.request(b"GET", b"/a\r\nx: y")
