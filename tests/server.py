"""A real server for tests, started and stopped as a user would, and small clients for it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

START_SECONDS = 120.0
_ADDRESS = re.compile(r"Listening on (http://\S+)")


@dataclass(frozen=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error, after checking that it has the one shape errors have."""
        content = self.json()
        assert list(content) == ["error"], content
        assert set(content["error"]) == {"message", "type", "param", "code"}, content
        assert self.headers["content-type"] == "application/json"
        return dict(content["error"])


class Server:
    """`penstock serve MODEL --port 0`, in a process of its own; without a model, that of `--config`."""

    def __init__(
        self, model: str | None, *options: str, log: Path, env: dict[str, str] | None = None
    ) -> None:
        self._log = log.open("w+")
        named = [] if model is None else [model]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", *named, "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            # Keys and ledger of its own: a key that one test makes must not lock the others out.
            env={
                **os.environ,
                "NO_COLOR": "1",
                "PENSTOCK_STATE_DIR": str(log.with_suffix(".state")),
                **(env or {}),
            },
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.output: list[str] = []
        try:
            self.url = self._wait_for_address()
        except BaseException:
            self.stop()
            raise
        address = urlsplit(self.url)
        self.host, self.port = str(address.hostname), int(address.port or 0)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float = 60,
    ) -> Reply:
        """One exchange. A `body` that is not bytes is sent as JSON."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        with contextlib.closing(connection):
            data, extra = _encoded(body)
            connection.request(method, path, data, {**extra, **(headers or {})})
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None, timeout: float = 60) -> Reply:
        return self.request("POST", path, body, headers, timeout)

    @contextlib.contextmanager
    def streaming(
        self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
    ) -> Iterator[Iterator[Any]]:
        """The events of a stream, decoded; the last one is "[DONE]". Leaving early hangs up."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        with contextlib.closing(connection):
            data, extra = _encoded({**body, "stream": True})
            connection.request("POST", path, data, {**extra, **(headers or {})})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield events(response)

    def stream(self, path: str, body: dict[str, Any]) -> list[Any]:
        with self.streaming(path, body) as chunks:
            return list(chunks)

    def raw(self, data: bytes, timeout: float = 30) -> bytes:
        """Send bytes as they are and read until the server hangs up."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            received = b""
            with contextlib.suppress(ConnectionError):
                while chunk := connection.recv(65536):
                    received += chunk
            return received

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample of /metrics; 0 if it has not appeared yet."""
        return sum(value for found, value in self.metrics(name) if labels.items() <= found.items())

    def metrics(self, name: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values of all samples of this name."""
        text = self.get("/metrics").body.decode()
        return [
            (sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        ]

    def engine_pids(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def log(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text()

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 60) -> int:
        return self.process.wait(timeout)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.signal()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._log.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):  # closed by stop()
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def _wait_for_address(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while True:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            if line is None:
                raise RuntimeError(f"The server ended with {self.process.wait()}: {self.log()[-2000:]}")
            self.output.append(line)
            if found := _ADDRESS.search(line):
                return found[1]


def events(lines: Any) -> Iterator[Any]:
    """Server-sent events of a response, checking that nothing else is in it."""
    for line in lines:
        if line == b"\n":
            continue
        assert line.startswith(b"data: "), line
        data = line[6:].strip()
        yield "[DONE]" if data == b"[DONE]" else json.loads(data)


def poll(check: Any, *, seconds: float = 30.0) -> None:
    """Wait until `check()` is true. The limit turns a hang into a failure: longer than a machine stalls."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def _encoded(body: Any) -> tuple[bytes | None, dict[str, str]]:
    if body is None:
        return None, {}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return data, {"Content-Type": "application/json"}
