"""A mock upstream: an OpenAI-compatible server with canned answers, as cheap as Python allows.

It listens on loopback, prints where as one line of JSON, and ends when its standard input closes.
Streams advance together, one chunk each per step, as the sequences of a batching engine do; every chunk is a
write of its own. `POST /control?step_ms=20` sets the time of a step; 0 means as fast as it can.

    python benchmarks/gateway/mock.py --port 9000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from dataclasses import dataclass, field

import uvloop

STREAM = re.compile(rb'"stream"\s*:\s*true')
INCLUDE_USAGE = re.compile(rb'"include_usage"\s*:\s*true')
MAX_TOKENS = re.compile(rb'"max_(?:completion_)?tokens"\s*:\s*(\d+)')
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
STEP = re.compile(rb"step_ms=([0-9.]+)")

MODEL = "mock"
CREATED = 1_760_000_000
WORDS = ("Water ", "falls ", "through ", "the ", "pipe ", "and ", "turns ", "a ", "wheel ", "below. ")
DEFAULT_CHUNKS = 64
PROMPT_TOKENS = 118
COMPLETION_TOKENS = 52


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def usage(completion: int) -> dict[str, object]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": completion,
        "total_tokens": PROMPT_TOKENS + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def http(body: bytes, status: str = "200 OK", kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(delta: dict[str, object] | None, finish: str | None = None, **extra: object) -> bytes:
    choices = (
        [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    )
    head = {
        "id": "chatcmpl-7f0c2a9be41d",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": MODEL,
    }
    return chunked(b"data: " + compact({**head, "choices": choices, **extra}) + b"\n\n")


COMPLETION = http(
    compact(
        {
            "id": "chatcmpl-7f0c2a9be41d",
            "object": "chat.completion",
            "created": CREATED,
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "".join(WORDS * 5).strip(), "refusal": None},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": usage(COMPLETION_TOKENS),
            "system_fingerprint": "fp_mock",
        }
    )
)
MODELS = http(
    compact(
        {"object": "list", "data": [{"id": MODEL, "object": "model", "created": CREATED, "owned_by": MODEL}]}
    )
)
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
ROLE = event({"role": "assistant", "content": ""})
CONTENT = tuple(event({"content": word}) for word in WORDS)
FINISH = event({}, "stop")
DONE = chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n"
NOT_FOUND = http(compact({"error": {"message": "There is no such path."}}), "404 Not Found")
NO_LENGTH = http(compact({"error": {"message": "Content-Length is missing."}}), "411 Length Required")


@dataclass(slots=True)
class Stream:
    """One streamed answer: `left` content chunks are still to come."""

    connection: Connection
    total: int
    include_usage: bool
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.total

    def advance(self) -> bool:
        """Write the next chunk; False when that was the last."""
        write = self.connection.transport.write
        if self.left:
            write(CONTENT[self.left % len(CONTENT)])
            self.left -= 1
            return True
        write(FINISH)
        if self.include_usage:
            write(event(None, usage=usage(self.total)))
        write(DONE)
        return False


class Upstream:
    """All connections' streams, advanced by one timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.step_seconds = 0.0
        self.streams: list[Stream] = []
        self._stepping = False

    def begin(self, stream: Stream) -> None:
        self.streams.append(stream)
        if not self._stepping:
            self._stepping = True
            self._next()

    def _next(self) -> None:
        if self.step_seconds:
            self.loop.call_later(self.step_seconds, self._step)
        else:
            self.loop.call_soon(self._step)

    def _step(self) -> None:
        self.streams = [
            stream
            for stream in self.streams
            if not stream.connection.closed and (stream.connection.paused or stream.advance())
        ]
        self._stepping = bool(self.streams)
        if self._stepping:
            self._next()

    def metrics(self) -> bytes:
        label = f'{{model_name="{MODEL}"}}'
        gauges = {
            "vllm:num_requests_running": len(self.streams),
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": min(1.0, len(self.streams) / 256),
        }
        lines = [f"# TYPE {name} gauge\n{name}{label} {value}\n" for name, value in gauges.items()]
        return http("".join(lines).encode(), kind="text/plain; version=0.0.4")


class Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.closed = False
        self.paused = False
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def data_received(self, data: bytes) -> None:
        if self._received:
            data = self._received + data
        while data:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                break
            found = CONTENT_LENGTH.search(data, 0, end + 2)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(data) < whole:
                break
            self._answer(data[:whole], end, measured=found is not None)
            data = data[whole:]
        self._received = data

    def _answer(self, request: bytes, end: int, *, measured: bool) -> None:
        write = self.transport.write
        if request.startswith(b"POST /v1/chat/completions"):
            if not measured:
                write(NO_LENGTH)
                self.transport.close()
            elif STREAM.search(request, end):
                wanted = MAX_TOKENS.search(request, end)
                write(STREAM_HEAD + ROLE)
                chunks = int(wanted[1]) if wanted else DEFAULT_CHUNKS
                self.upstream.begin(Stream(self, chunks, INCLUDE_USAGE.search(request, end) is not None))
            else:
                write(COMPLETION)
        elif request.startswith(b"GET /v1/models"):
            write(MODELS)
        elif request.startswith((b"GET /health", b"GET /ready")):
            write(http(b"{}"))
        elif request.startswith(b"GET /metrics"):
            write(self.upstream.metrics())
        elif request.startswith(b"POST /control") and (step := STEP.search(request, 0, end)):
            self.upstream.step_seconds = float(step[1]) / 1000
            write(http(b"{}"))
        else:
            write(NOT_FOUND)


async def serve(host: str, port: int, listen: int) -> None:
    loop = asyncio.get_running_loop()
    upstream = Upstream(loop)
    servers = [
        await loop.create_server(lambda: Connection(upstream), host, port and port + number)
        for number in range(listen)
    ]
    ended = asyncio.Event()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            ended.set()

    loop.add_reader(sys.stdin.fileno(), read)
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    sys.stdout.write(json.dumps({"host": host, "ports": ports}) + "\n")
    sys.stdout.flush()
    await ended.wait()
    for server in servers:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    parser.add_argument(
        "--listen", type=int, default=1, help="on how many ports, to pass for several servers"
    )
    options = parser.parse_args()
    uvloop.run(serve(options.host, options.port, options.listen))


if __name__ == "__main__":
    main()
