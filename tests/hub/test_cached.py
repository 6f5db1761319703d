"""Finding what is on this machine already, without fetching anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ModelError
from penstock.hub.cached import cached_models, hub_cache, locate
from penstock.hub.known import DEFAULT
from tests.hub.test_gguf import write_split
from tests.hub.test_resolve import write_gguf, write_safetensors

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty caches, and no way to fetch into them."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "penstock"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hugging"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setattr("subprocess.run", None)
    monkeypatch.setattr("socket.getaddrinfo", None)


def snapshot(repo: str) -> Path:
    root = hub_cache() / f"models--{repo.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    folder = root / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    return folder


def test_nothing_is_found_in_caches_that_are_not_there() -> None:
    assert cached_models() == []
    assert locate("default") is None
    assert locate("org/name") is None


def test_the_default_model_is_found_once_it_is_there() -> None:
    DEFAULT.path.parent.mkdir(parents=True)
    write_gguf(DEFAULT.path)
    assert locate("DEFAULT") == locate("smollm2-135m")
    (only,) = cached_models()
    assert (only.name, only.path, only.bytes) == ("default", DEFAULT.path, DEFAULT.path.stat().st_size)


def test_hub_models_are_found_by_their_id_without_the_hubs_library() -> None:
    folder = write_safetensors(snapshot("org/some--name"))
    found = locate("org/some--name")
    assert found is not None
    assert (found.name, found.path, found.format) == ("org/some--name", folder, "safetensors")
    assert locate(f"org/some--name@{COMMIT}") == found
    assert locate("org/some--name@other") is None
    assert [model.name for model in cached_models()] == ["org/some--name"]


def test_a_gguf_of_a_hub_model_is_named_with_its_file() -> None:
    folder = snapshot("org/name")
    write_gguf(folder / "a.gguf")
    write_gguf(folder / "b.gguf")
    assert [model.name for model in cached_models()] == ["org/name:a.gguf", "org/name:b.gguf"]
    found = locate("org/name:b.gguf")
    assert found is not None
    assert found.path == folder / "b.gguf"
    assert locate("org/name:c.gguf") is None


def test_a_path_is_a_model_and_a_mistake_is_said_as_ever(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf")
    found = locate(str(path))
    assert found is not None
    assert found.path == path
    with pytest.raises(ModelError, match="There is nothing at"):
        locate("./nowhere.gguf")
    with pytest.raises(ModelError, match="is not known"):
        locate("frobnicate")


def test_folders_that_hold_no_model_are_passed_over(tmp_path: Path) -> None:
    (snapshot("org/empty") / "README.md").write_text("x")
    (tmp_path / "penstock" / "models" / "half").mkdir(parents=True)
    (tmp_path / "penstock" / "models" / "file").write_text("x")
    assert cached_models() == []


def test_a_split_model_is_one_model_with_the_bytes_of_all_its_parts() -> None:
    folder = snapshot("org/name")
    first = write_split(folder, "big", 3)
    write_split(folder, "big", 2)  # the same name in fewer parts
    write_gguf(folder / "small.gguf")
    (folder / "lone-00002-of-00002.gguf").write_bytes(b"")  # a download that never began
    found = {model.name: model.bytes for model in cached_models()}
    parts = [first.with_name(f"big-{number:05d}-of-00003.gguf") for number in (1, 2, 3)]
    assert found.pop("org/name:big-00001-of-00003.gguf") == sum(part.stat().st_size for part in parts)
    assert sorted(found) == ["org/name:big-00001-of-00002.gguf", "org/name:small.gguf"]
