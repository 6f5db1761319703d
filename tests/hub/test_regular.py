"""What is no regular file is refused with what it is, and never waited for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import ConfigError, ModelError
from penstock.hub import resolve
from penstock.hub.cached import cached_models
from penstock.hub.gguf import GGUFFile
from penstock.hub.regular import open_regular, read_regular
from penstock.hub.safetensors import INDEX, SafetensorsFolder
from penstock.text.template_file import read_template
from tests.engine.tiny import save_tiny_llama
from tests.hub.test_gguf import write_split
from tests.hub.test_safetensors import write_index

# Whoever waits for the other end of a pipe waits for ever.
pytestmark = pytest.mark.timeout(20)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))  # a socket's path is short


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "a named pipe"),
        (Path.mkdir, "a folder"),
        (make_socket, "a socket"),
        (lambda path: path.symlink_to("/dev/null"), "a device"),
    ],
)
def test_it_is_said_what_a_path_is(
    make: Callable[[Path], None], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model"
    make(path)
    with pytest.raises(OSError, match=f"it is {kind}, not a regular file") as caught:
        open_regular(path)
    assert caught.value.filename == str(path)


def test_a_file_or_a_link_to_one_is_read_as_ever(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"abc"
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["pipe", "pipe.gguf"])
def test_a_pipe_is_no_model(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(ModelError, match=rf"{name}: it is a named pipe, not a regular file\.$"):
        resolve(str(tmp_path / name))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", INDEX])
def test_a_folder_with_a_pipe_in_it_is_no_model(name: str, tmp_path: Path) -> None:
    folder = save_tiny_llama(tmp_path / "tiny")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(ModelError, match=rf"{name}: it is a named pipe, not a regular file\.$"):
        resolve(str(folder))


def test_a_pipe_among_shards_or_parts_is_not_called_missing(tmp_path: Path) -> None:
    folder = save_tiny_llama(tmp_path / "tiny")
    write_index(folder, {"a": "model.safetensors", "b": "other.safetensors"})
    os.mkfifo(folder / "other.safetensors")
    with pytest.raises(ModelError, match=r"other\.safetensors: it is a named pipe"):
        SafetensorsFolder(folder)
    first = write_split(tmp_path, "model", 2)
    second = tmp_path / "model-00002-of-00002.gguf"
    second.unlink()
    os.mkfifo(second)
    with pytest.raises(ModelError, match=r"00002\.gguf: it is a named pipe"):
        GGUFFile(first)


def test_a_pipe_in_the_hubs_cache_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    refs = tmp_path / "models--org--name" / "refs"
    refs.mkdir(parents=True)
    os.mkfifo(refs / "main")
    assert cached_models() == []


def test_a_pipe_is_no_chat_template(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.jinja")
    reason = r"^The chat template \S+t\.jinja cannot be read: it is a named pipe, not a regular file\.$"
    with pytest.raises(ConfigError, match=reason):
        read_template(tmp_path / "t.jinja")
