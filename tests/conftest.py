"""What tests share: the models that are fetched, and one server of each for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server import Server


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's file, fetched first if it is not in the cache."""
    from penstock import hub

    return hub.resolve("default").path


@pytest.fixture(scope="session")
def default_reference(default_model: Path) -> Any:
    """The default model as transformers reads it, in float32: that takes a quarter of a minute."""
    import torch
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(
        default_model.parent, gguf_file=default_model.name, dtype=torch.float32
    ).eval()


@pytest.fixture(scope="session")
def embedding_model() -> Path:
    """The embedding model's folder, fetched first if it is not in the cache."""
    from penstock import hub

    return hub.resolve("all-minilm-l6-v2").path


@pytest.fixture(scope="session")
def server(default_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server, one engine, for every test that does not stop or configure it."""
    running = Server(str(default_model), log=tmp_path_factory.mktemp("server") / "log")
    try:
        yield running
    finally:
        running.stop()
    assert "Traceback" not in Path(running._log.name).read_text()


@pytest.fixture(scope="session")
def embedding_server(embedding_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same of the embedding model, by the name a user would type."""
    running = Server("all-minilm-l6-v2", log=tmp_path_factory.mktemp("embedding-server") / "log")
    try:
        yield running
    finally:
        running.stop()
    assert "Traceback" not in Path(running._log.name).read_text()


@pytest.fixture(scope="session")
def model_name(server: Server) -> str:
    return str(server.get("/v1/models").json()["data"][0]["id"])
