"""Servers that tests may break: real ones, of a tiny model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.load import all_healthy
from tests.faults.tiny import save_tiny_model
from tests.server import Server, poll

Serve = Callable[..., Server]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Start servers of a configuration; those that still run at the end are stopped."""
    running: list[Server] = []

    def begin(config: dict[str, Any], *options: str) -> Server:
        folder = tmp_path_factory.mktemp("server")
        file = folder / "penstock.yaml"
        file.write_text(yaml.safe_dump(config))
        # One thread each: several engines share the machine with whoever asks them. In float32, so slow that
        # something can happen to a request before it is answered.
        env = {"PENSTOCK_THREADS": "1", "PENSTOCK_PRECISION": "float32"}
        server = Server(None, "--config", str(file), *options, log=folder / "log", env=env)
        running.append(server)
        return server

    yield begin
    for server in running:
        server.stop()


@pytest.fixture(scope="session")
def engines(serve: Serve, tiny_model: Path) -> Serve:
    """Start a server of the tiny model with so many engines."""

    def begin(replicas: int, *options: str, balance: str = "least_tokens", **config: Any) -> Server:
        backend = {"engine": str(tiny_model), "replicas": replicas, "device": "cpu", "max_running": 16}
        models = {"tiny": {"backends": [backend], "balance": balance}}
        return serve({"models": models, **config}, *options)

    return begin


@pytest.fixture(scope="session")
def shared_three(engines: Serve) -> Server:
    return engines(3, health={"restart_backoff": "100ms", "slow_start": "1s"})


@pytest.fixture
def three(shared_three: Server) -> Server:
    """A server with three engines that tests may kill and stop; each test finds all of them well."""
    poll(lambda: all_healthy(shared_three), seconds=60)
    return shared_three
