"""What the clients share beside the server of the default model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server import Server


@pytest.fixture(scope="session")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the embedding model, which is fetched first if it is not in the cache."""
    running = Server("all-minilm-l6-v2", log=tmp_path_factory.mktemp("embedder") / "log")
    try:
        yield running
    finally:
        running.stop()
