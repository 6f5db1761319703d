from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.hub.packaged import PackagedModel
from tests.hub.package_index import CONTENT, Index, make_wheel


@pytest.fixture
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's pip configuration, and a cache folder of our own."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, PackagedModel]:
    return make_wheel(tmp_path, CONTENT)


@pytest.fixture
def model(made: tuple[Path, PackagedModel], own_settings: None) -> PackagedModel:
    return made[1]


@pytest.fixture
def index(
    made: tuple[Path, PackagedModel], own_settings: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Index]:
    with Index(made[0]).running() as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        yield running
