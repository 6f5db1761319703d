"""Servers behind the front door that several files ask, each file with its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.gated import OpenAIServer
from tests.servers.http import in_a_thread


@pytest.fixture(scope="module")
def upstream() -> Iterator[OpenAIServer]:
    with in_a_thread(OpenAIServer()) as server:
        yield server


@pytest.fixture(scope="module")
def broken() -> Iterator[OpenAIServer]:
    """Fails whatever it is asked."""
    with in_a_thread(OpenAIServer("broken")) as server:
        server.broken = True
        yield server
