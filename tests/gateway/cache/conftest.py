"""A Redis server of the tests' own, and the loop that serves."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.upstream.conftest import pytest_asyncio_loop_factories
from tests.packages import needs

__all__ = ["pytest_asyncio_loop_factories"]


class RedisServer:
    """A `redis-server` on a socket in a folder: no port, nothing written to disk."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "redis.sock"
        self._folder = folder
        self.url = f"unix://{self._socket}"
        self.start()

    def start(self) -> None:
        options = {"port": "0", "unixsocket": str(self._socket), "dir": str(self._folder)}
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        self._process = subprocess.Popen(
            ["redis-server", *arguments, "--save", "", "--appendonly", "no"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 30
        while not self._socket.exists():
            assert self._process.poll() is None, "redis-server ended at once"
            assert time.monotonic() < until, "redis-server did not begin to listen"
            time.sleep(0.01)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._socket.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    needs("redis-server")
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        yield server
    finally:
        server.kill()
