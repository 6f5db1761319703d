"""The connection itself: what happens before there is a request, and between two of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.gateway import call, http
from penstock.gateway.call import Call
from penstock.gateway.http import LimitedHTTPProtocol
from penstock.protocol.errors import HTTPError

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class App:
    """Answers when told to, and notes whether the client left before."""

    def __init__(self) -> None:
        self.calls = 0
        self.called = asyncio.Event()
        self.go = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        exchange = Call(scope, receive, send)
        await receive()
        stop = exchange.when_left(self.left.set)
        self.called.set()
        gone = asyncio.create_task(self.left.wait())
        going = asyncio.create_task(self.go.wait())
        await asyncio.wait((gone, going), return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        going.cancel()
        if not self.left.is_set():
            stop()
            await exchange.answer(b"{}")


@contextlib.asynccontextmanager
async def listening(app: ASGIApp) -> AsyncIterator[int]:
    config = uvicorn.Config(
        app,
        http=LimitedHTTPProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield listener.getsockname()[1]
        if isinstance(app, App):
            app.go.set()
        server.should_exit = True
        await serving


async def test_requests_follow_one_another_on_one_connection() -> None:
    app = App()
    app.go.set()
    async with listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(REQUEST)
            assert b"200 OK" in await reader.readuntil(b"{}")
        writer.close()
    assert app.calls == 3


async def test_a_client_that_leaves_is_noticed() -> None:
    app = App()
    async with listening(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        await app.called.wait()
        writer.close()
        await asyncio.wait_for(app.left.wait(), 30)


async def test_a_client_that_sends_ahead_and_leaves_is_noticed_too() -> None:
    app = App()
    async with listening(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            REQUEST + b"POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000 + REQUEST
        )
        await asyncio.sleep(0.1)
        writer.close()
        await asyncio.wait_for(app.left.wait(), 30)
    assert app.calls == 1


async def test_of_requests_sent_ahead_the_first_is_answered_and_the_connection_closed() -> None:
    app = App()
    async with listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST * 3)
        await asyncio.sleep(0.1)
        app.go.set()
        received = await asyncio.wait_for(reader.read(), 30)
        writer.close()
    assert received.count(b"HTTP/1.1 200 OK") == 1
    assert b"connection: close" in received
    assert app.calls == 1


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_a_head_that_does_not_come_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.2)
    app = App()
    async with listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
    assert app.calls == 0


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "BODY_SECONDS", 0.05)

    async def receive() -> dict[str, object]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: object) -> None:
        raise AssertionError("nothing is to be sent")

    scope = {"type": "http", "headers": [(b"content-type", b"application/json")]}
    with pytest.raises(HTTPError) as caught:
        await Call(scope, receive, send).body()  # type: ignore[arg-type]
    assert caught.value.status == 408


@pytest.mark.parametrize("upgrade", [b"Upgrade: h2c", b"upgrade: websocket"])
async def test_an_upgrade_that_is_not_offered_is_answered_as_http_body_and_all(upgrade: bytes) -> None:
    """Java's client asks for HTTP/2 in this way with its first request."""
    received = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Call(scope, receive, send)
        received.append(await exchange.body())
        await exchange.answer(b"{}")

    async with listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(
                b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n" + upgrade + b"\r\n"
                b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\nContent-Type: application/json\r\n"
                b"Content-Length: 15\r\n\r\n\r\nUpgrade: x=%d " % len(received)
            )
            assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"{}"), 30)
        writer.close()
    assert received == [b"\r\nUpgrade: x=0 ", b"\r\nUpgrade: x=1 "]


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"


@pytest.mark.parametrize("trailer", [b"x: y\r\n" * 4096, b"x: " + b"y" * 32768])
async def test_trailers_without_end_are_cut_off(trailer: bytes) -> None:
    app = App()
    async with listening(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)

        async def send_on() -> None:
            writer.write(CHUNKED)
            for _ in range(200):
                writer.write(trailer)
                await writer.drain()
                await asyncio.sleep(0)

        with pytest.raises(ConnectionError):
            await send_on()


async def test_what_comes_behind_the_body_is_no_header() -> None:
    seen: list[list[tuple[bytes, bytes]]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        seen.append(list(scope["headers"]))
        await Call(scope, receive, send).answer(b"{}")

    async with listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED + b"Authorization: Bearer stolen\r\n\r\n")
        assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"{}"), 30)
        writer.close()
    assert [name for name, _ in seen[0]] == [b"host", b"transfer-encoding"]


async def test_a_client_that_takes_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STALL_SECONDS", 0.2)
    gone = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Call(scope, receive, send)
        exchange.when_left(gone.set)
        await exchange.start_stream()
        while not gone.is_set():
            await exchange.write(b"x" * 65536)
            await asyncio.sleep(0)

    async with listening(app) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(REQUEST)
            await asyncio.wait_for(gone.wait(), 20)
