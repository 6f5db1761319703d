"""The fingerprint tells models apart, and the same model is the same wherever it lies."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.hub.files import ModelFiles
from penstock.hub.fingerprint import BLOCK_BYTES, BLOCKS, fingerprint

LARGE = 4 * BLOCKS * BLOCK_BYTES


def test_any_byte_of_a_small_file_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    first.write_bytes(b"x" * 1000)
    second.write_bytes(b"x" * 1000)
    assert fingerprint(first) == fingerprint(second)
    assert len(fingerprint(first)) == 64
    second.write_bytes(b"x" * 500 + b"y" + b"x" * 499)
    assert fingerprint(first) != fingerprint(second)


def test_of_a_large_file_size_beginning_end_and_a_sample_count(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(bytes(LARGE))
    seen = {fingerprint(file)}
    for at in (0, LARGE - 1, (LARGE - BLOCK_BYTES) * 20 // (BLOCKS - 1)):
        with open(file, "r+b") as opened:
            os.pwrite(opened.fileno(), b"y", at)
        seen.add(fingerprint(file))
    os.truncate(file, LARGE - 1)
    seen.add(fingerprint(file))
    assert len(seen) == 5


def test_all_files_of_a_model_count(tmp_path: Path) -> None:
    for name in ("model-00001.safetensors", "model-00002.safetensors"):
        (tmp_path / name).write_bytes(name.encode())
    before = fingerprint(tmp_path)
    (tmp_path / "README.md").write_text("not the model")
    assert fingerprint(tmp_path) == before
    (tmp_path / "model-00002.safetensors").write_bytes(b"other")
    assert fingerprint(tmp_path) != before
    split = tmp_path / "m-00001-of-00002.gguf"
    split.write_bytes(b"a")
    assert fingerprint(split) == "", "one of its parts is missing"
    (tmp_path / "empty").mkdir()
    assert fingerprint(tmp_path / "empty") == "", "what is not there tells nobody apart"


def test_the_revision_is_the_commit_of_the_hubs_cache() -> None:
    folder = Path("/cache/hub/models--org--name/snapshots/abc123")
    assert ModelFiles("m", folder, "safetensors").revision == "abc123"
    assert ModelFiles("m", folder / "m.gguf", "gguf").revision == "abc123"
    assert ModelFiles("m", Path("/models/m.gguf"), "gguf").revision == ""
