"""The load generator: raw HTTP/1.1 over kept-alive connections, cheap beside what it measures.

Reads one job as a line of JSON on standard input, answers with one line of JSON, and so on until its input
closes. All times are seconds. Kinds of job:

- `closed`: each of `connections` asks again once it is answered, for `seconds` or until `requests` are sent;
- `open`: requests arrive at `rate` a second whether or not earlier ones are answered (Poisson, by `seed`);
- `alternate`: one client asks `targets` in turn, in `rounds` of `block`, so that noise hits all alike.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import uvloop

CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)
LAST_CHUNK = b"\r\n0\r\n\r\n"
EVENT = b"data: "
DONE = b"data: [DONE]"
ERROR = b'data: {"error"'
OVERLAP = 16  # bytes; longer than each of these marks
SYSTEM = (
    "You are the assistant of a waterworks. Answer in two sentences, plainly, with numbers where there are "
    "any, and say so when you do not know. Never give advice on opening the sluices by hand."
)
QUESTION = (
    "Question {number}: how much water passes the upper gate in an hour when the wheel turns at half speed?"
)
NUMBER = b"0000000000"  # replaced by the request's number, so that no two prompts are the same
MAX_OUTSTANDING = 1000  # of an open loop; what comes on top is refused here and counted as an error
GRACE_SECONDS = 60.0  # for what is still running when a phase is over


class Target:
    """Where requests go, and how they look."""

    def __init__(self, job: dict[str, Any], address: dict[str, Any]) -> None:
        self.host: str = address["host"]
        self.port: int = address["port"]
        self.stream: bool = job.get("stream", False)
        body: dict[str, Any] = {
            "model": address["model"],
            "messages": [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": QUESTION.format(number=NUMBER.decode())},
            ],
            "max_tokens": job.get("chunks", 64),
            "temperature": 0.2,
        }
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        content = json.dumps(body).encode()
        lines = [
            "POST /v1/chat/completions HTTP/1.1",
            f"host: {self.host}:{self.port}",
            "content-type: application/json",
            "accept: */*",
            "user-agent: penstock-benchmark",
            *([f"authorization: Bearer {address['key']}"] if address.get("key") else []),
            f"content-length: {len(content)}",
        ]
        request = "\r\n".join(lines).encode() + b"\r\n\r\n" + content
        self._before, self._after = request.split(NUMBER)
        self._sent = 0

    def request(self) -> bytes:
        self._sent += 1
        return b"%b%010d%b" % (self._before, self._sent, self._after)


class Tally:
    """What a phase saw of one target."""

    def __init__(self) -> None:
        self.latencies = array("d")
        self.first = array("d")  # until the first event of a stream
        self.gaps = array("d")  # between two reads of one stream
        self.chunks = 0
        self.errors = 0
        self.first_error: str | None = None

    def failed(self, reason: str) -> None:
        self.errors += 1
        self.first_error = self.first_error or reason

    def result(self, wall: float) -> dict[str, Any]:
        return {
            "answers": len(self.latencies),
            "errors": self.errors,
            "first_error": self.first_error,
            "wall": wall,
            "latency": distribution(self.latencies),
            "chunks": self.chunks,
            "ttft": distribution(self.first),
            "gap": distribution(self.gaps),
        }


class Connection(asyncio.Protocol):
    """One kept-alive connection that has at most one request under way."""

    def __init__(self, target: Target, tally: Tally, done: Callable[[Connection], None]) -> None:
        self.target = target
        self.tally = tally
        self.done = done
        self.open = False
        self._transport: asyncio.Transport | None = None
        self._busy = False
        self._received = b""
        self._sent = 0.0
        self._last = 0.0  # when a stream's last events came; 0 before the first
        self._done_seen = False
        self._failed = False
        self._head: bytes | None = None

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, self.target.host, self.target.port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.open = True

    def ask(self) -> None:
        assert self._transport is not None
        self._busy = True
        self._received = b""
        self._head = None
        request = self.target.request()
        self._done_seen = self._failed = False
        self._last = 0.0
        self._sent = time.perf_counter()
        self._transport.write(request)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._busy:
            self._finish(f"The connection was lost before the answer was complete: {error or 'closed'}.")

    def data_received(self, data: bytes) -> None:
        if self.target.stream:
            self._stream_received(data)
            return
        self._received = received = self._received + data if self._received else data
        if self._head is None:
            end = received.find(b"\r\n\r\n")
            if end < 0:
                return
            self._head = received[: end + 2]
        if found := CONTENT_LENGTH.search(self._head):
            complete = len(received) >= len(self._head) + 2 + int(found[1])
        else:
            complete = received.endswith(LAST_CHUNK)
        if complete:
            self._finish(None if self._head[9:12] == b"200" else refusal(received))

    def _stream_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._head is None:
            self._received += data
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            self._head, data = self._received[: end + 2], self._received[end + 4 :]
            self._received = b""
            if self._head[9:12] != b"200" or not CHUNKED.search(self._head):
                self._finish(refusal(self._head + b"\r\n" + data))
                return
        # What a read cuts in two is found with the end of the former read in front of it.
        window = self._received + data
        if events := window.count(EVENT) - self._received.count(EVENT):
            self.tally.chunks += events
            if self._last:
                self.tally.gaps.append(now - self._last)
            else:
                self.tally.first.append(now - self._sent)
            self._last = now
        self._done_seen = self._done_seen or DONE in window
        self._failed = self._failed or ERROR in window
        self._received = window[-OVERLAP:]
        if window.endswith(LAST_CHUNK):
            self.tally.chunks -= self._done_seen  # the mark of the end is no chunk
            if self._failed:
                self._finish(f"A stream brought an error: {window[-300:]!r}")
            else:
                self._finish(None if self._done_seen else "A stream ended without [DONE].")

    def _finish(self, error: str | None) -> None:
        self._busy = False
        if error is None:
            self.tally.latencies.append(time.perf_counter() - self._sent)
        else:
            self.tally.failed(error)
            self.close()
            self.open = False
        self.done(self)


def refusal(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    return (
        f"{head[9:40].split(bytes([13]))[0].decode(errors='replace')}: {body[:200].decode(errors='replace')}"
    )


def distribution(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    at = {
        f"p{percent:g}": ordered[round((len(ordered) - 1) * percent / 100)] for percent in (50, 90, 99, 99.9)
    }
    return {"count": len(ordered), "mean": sum(ordered) / len(ordered), **at, "max": ordered[-1]}


async def closed(job: dict[str, Any]) -> dict[str, Any]:
    target, tally = Target(job, job["target"]), Tally()
    loop = asyncio.get_running_loop()
    requests: int | None = job.get("requests")
    ends = loop.time() + job["seconds"] if "seconds" in job else None
    sent = running = 0
    over = loop.create_future()

    def more() -> bool:
        return (
            not over.done() and (requests is None or sent < requests) and (ends is None or loop.time() < ends)
        )

    def next_of(connection: Connection) -> None:
        nonlocal sent, running
        if more() and connection.open:
            sent += 1
            connection.ask()
            return
        running -= 1
        connection.close()
        if more() and tally.errors < 100:
            running += 1
            reopened = loop.create_task(start())
            opening.add(reopened)
            reopened.add_done_callback(opening.discard)
        elif running == 0 and not over.done():
            over.set_result(None)

    async def start() -> None:
        nonlocal running
        connection = Connection(target, tally, next_of)
        try:
            await connection.connect()
        except OSError as error:
            tally.failed(f"The connection could not be made: {error}.")
        next_of(connection)

    opening: set[asyncio.Task[None]] = set()
    began = loop.time()
    running = job["connections"]
    await asyncio.gather(*(start() for _ in range(job["connections"])))
    limit = (job.get("seconds") or job.get("limit_seconds", 3600.0)) + GRACE_SECONDS
    try:
        await asyncio.wait_for(over, limit)
    except TimeoutError:
        tally.failed(f"{running} requests were not answered {GRACE_SECONDS:.0f} s after the phase was over.")
    return tally.result(loop.time() - began)


async def open_loop(job: dict[str, Any]) -> dict[str, Any]:
    target, tally = Target(job, job["target"]), Tally()
    loop = asyncio.get_running_loop()
    arrivals = random.Random(job["seed"])
    idle: list[Connection] = []
    outstanding = 0
    tasks: set[asyncio.Task[None]] = set()
    drained = asyncio.Event()

    def answered(connection: Connection) -> None:
        nonlocal outstanding
        outstanding -= 1
        drained.set()
        if connection.open:
            idle.append(connection)

    async def open_one() -> Connection:
        connection = Connection(target, tally, answered)
        await connection.connect()
        return connection

    async def ask_anew() -> None:
        nonlocal outstanding
        try:
            (await open_one()).ask()
        except OSError as error:
            tally.failed(f"The connection could not be made: {error}.")
            outstanding -= 1

    idle.extend([await open_one() for _ in range(job.get("connections", 8))])
    began = loop.time()
    due = began
    while (due := due + arrivals.expovariate(job["rate"])) < began + job["seconds"]:
        if (wait := due - loop.time()) > 0:
            await asyncio.sleep(wait)
        while idle and not idle[-1].open:
            idle.pop()
        if outstanding >= MAX_OUTSTANDING:
            tally.failed(f"{MAX_OUTSTANDING} requests were already waiting for their answers.")
            continue
        outstanding += 1
        if idle:
            idle.pop().ask()
        else:
            task = loop.create_task(ask_anew())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    wall = loop.time() - began
    late = loop.time() + GRACE_SECONDS
    while outstanding and loop.time() < late:
        drained.clear()
        try:
            await asyncio.wait_for(drained.wait(), 1.0)
        except TimeoutError:
            continue
    if outstanding:
        tally.failed(
            f"{outstanding} requests were not answered {GRACE_SECONDS:.0f} s after the phase was over."
        )
    for connection in idle:
        connection.close()
    return tally.result(wall)


async def alternate(job: dict[str, Any]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[None] = loop.create_future()

    def done(_: Connection) -> None:
        if not answered.done():
            answered.set_result(None)

    connections = [Connection(Target(job, address), Tally(), done) for address in job["targets"]]
    began = loop.time()
    for _ in range(job["rounds"]):
        for connection in connections:
            for _ in range(job["block"]):
                if not connection.open:
                    await connection.connect()
                answered = loop.create_future()
                connection.ask()
                await asyncio.wait_for(answered, GRACE_SECONDS)
    for connection in connections:
        connection.close()
    return {"targets": [connection.tally.result(loop.time() - began) for connection in connections]}


KINDS: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
    "closed": closed,
    "open": open_loop,
    "alternate": alternate,
}


async def work() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        job = json.loads(line)
        sys.stdout.write(json.dumps(await KINDS[job["kind"]](job)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(work())
