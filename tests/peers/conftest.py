"""Other serving systems, installed in environments of their own and started as their users would."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.environments import environment
from tests.gateway.upstream.conftest import pytest_asyncio_loop_factories

__all__ = ["llamacpp", "pytest_asyncio_loop_factories"]

HERE = Path(__file__).parent
SLOTS = 2


@dataclass(frozen=True)
class PeerServer:
    url: str
    process: subprocess.Popen[str]


@pytest.fixture(scope="module")
def llamacpp(default_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerServer]:
    """llama.cpp from PyPI, with the default model and two slots."""
    python = environment("xllamacpp", HERE) / "python"
    command = [str(python), str(HERE / "llamacpp_server.py"), str(default_model), str(SLOTS)]
    with (
        (tmp_path_factory.mktemp("llamacpp") / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://"), f"llama.cpp did not start; see {log.name}"
            yield PeerServer(url, process)
        finally:
            process.terminate()
