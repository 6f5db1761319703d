"""A client that leaves takes its request with it: the engine's memory is free within a second."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from typing import Any

import aiohttp

from tests.server import Server, poll

CHAT = "/v1/chat/completions"
HEADERS = b"Host: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
SOON = 1.0 + 5.0  # seconds: what is promised, and what a busy machine may stand still
LONG = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True}


def held(server: Server) -> float:
    return server.metric("penstock_kv_blocks", state="held")


def idle(server: Server) -> bool:
    return held(server) == 0 and server.metric("vllm:num_requests_running") == 0


def test_a_dropped_stream_frees_its_blocks_within_a_second(server: Server) -> None:
    poll(lambda: idle(server))
    aborted = server.metric("vllm:request_success_total", finished_reason="abort")
    with server.streaming("/v1/completions", {**LONG, "n": 4}) as chunks:
        for _ in range(8):
            next(chunks)
        assert held(server) > 0
    poll(lambda: idle(server), seconds=SOON)
    assert server.metric("vllm:request_success_total", finished_reason="abort") == aborted + 4


def test_a_client_that_does_not_wait_for_a_whole_answer_frees_its_blocks_too(server: Server) -> None:
    poll(lambda: idle(server))
    body = json.dumps({**LONG, "prompt": ["One", "Two", "Three"]}).encode()
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\n" + HEADERS % len(body) + body)
        poll(lambda: server.metric("vllm:num_requests_running") == 3)
    poll(lambda: idle(server), seconds=SOON)
    assert server.metric("penstock_http_requests_total", route="/v1/completions", status="499") >= 1


def test_a_client_that_leaves_in_the_middle_of_its_body_is_forgotten(server: Server) -> None:
    left = server.metric("penstock_http_requests_total", route="/tokenize", status="499")
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(b"POST /tokenize HTTP/1.1\r\n" + HEADERS % 99 + b"{")
    poll(lambda: server.metric("penstock_http_requests_total", route="/tokenize", status="499") == left + 1)


async def test_a_hundred_clients_of_whom_a_fifth_hang_up_in_mid_stream(server: Server) -> None:
    """All others get their whole answer, and the engine is empty afterwards."""
    random.seed(1)
    leaving = set(random.sample(range(100), 20))

    async def client(session: aiohttp.ClientSession, number: int) -> str:
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": f"Tell me about the number {number}."}],
            "max_tokens": 16,
            "ignore_eos": True,
            "stream": True,
            "seed": number,
        }
        if number in leaving:
            body["max_tokens"] = 2000
        pieces = []
        async with session.post(server.url + CHAT, json=body) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                if line.startswith(b"data: "):
                    pieces.append(line)
                if number in leaving and len(pieces) == 4:
                    return "left"
        assert pieces[-1].strip() == b"data: [DONE]"
        finish = json.loads(pieces[-2][6:])["choices"][0]["finish_reason"]
        return str(finish)

    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=240)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        outcomes = await asyncio.gather(*(client(session, number) for number in range(100)))
    assert outcomes.count("left") == 20
    assert outcomes.count("length") == 80
    await asyncio.to_thread(poll, lambda: idle(server), seconds=SOON)
