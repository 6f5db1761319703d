"""Safetensors folders: whole ones are listed, others are refused before anything is mapped."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from penstock.errors import ModelError
from penstock.hub.safetensors import INDEX, SafetensorsFolder, read_header


def folder(path: Path, **shards: dict[str, np.ndarray]) -> Path:
    (path / "config.json").write_text('{"model_type": "llama"}')
    for name, tensors in shards.items():
        save_file(tensors, path / f"{name}.safetensors")
    return path


def write_index(path: Path, weight_map: Any) -> None:
    (path / INDEX).write_text(json.dumps({"weight_map": weight_map}))


def raw(path: Path, header: Any, data: bytes = b"") -> Path:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(content)) + content + data)
    return path


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_one_file_is_listed(tmp_path: Path) -> None:
    tensors = {
        "a": np.zeros((2, 3), np.float16),
        "b": np.zeros((), np.int64),
        "empty": np.zeros((0, 4), np.float32),
    }
    found = SafetensorsFolder(folder(tmp_path, model=tensors))
    assert found.config == {"model_type": "llama"}
    assert {name: (item.dtype, item.shape) for name, item in found.tensors.items()} == {
        "a": ("F16", (2, 3)),
        "b": ("I64", ()),
        "empty": ("F32", (0, 4)),
    }
    assert found.tensors["a"].file == tmp_path / "model.safetensors"


def test_shards_are_joined_by_their_index(tmp_path: Path) -> None:
    one, two = np.zeros(1, np.float32), np.zeros(2, np.float32)
    folder(tmp_path, first={"a": one, "extra": one}, second={"b": two}, consolidated={"a": two, "b": two})
    write_index(tmp_path, {"a": "first.safetensors", "b": "second.safetensors"})
    found = SafetensorsFolder(tmp_path).tensors
    assert {name: item.file.name for name, item in found.items()} == {
        "a": "first.safetensors",
        "b": "second.safetensors",
    }


def test_shards_without_an_index_are_joined_if_they_agree(tmp_path: Path) -> None:
    one = np.zeros(1, np.float32)
    assert set(SafetensorsFolder(folder(tmp_path, x={"a": one}, y={"b": one})).tensors) == {"a", "b"}
    folder(tmp_path, z={"a": one})
    with pytest.raises(ModelError, match=r"'a' is in both x\.safetensors and z\.safetensors"):
        SafetensorsFolder(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder(tmp_path, first={"a": np.zeros(1, np.float32)})
    write_index(tmp_path, {"a": "first.safetensors", "b": "second.safetensors"})
    with pytest.raises(ModelError, match=r"lacks 1 of its 2 shards, first second\.safetensors"):
        SafetensorsFolder(tmp_path)


def test_a_tensor_the_index_promises_and_no_shard_holds_is_named(tmp_path: Path) -> None:
    folder(tmp_path, first={"a": np.zeros(1, np.float32)})
    write_index(tmp_path, {"a": "first.safetensors", "b": "first.safetensors"})
    with pytest.raises(ModelError, match="first 'b'"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize("shard", ["../outside.safetensors", "/etc/passwd", "sub/x.safetensors"])
def test_an_index_cannot_name_files_outside_the_folder(tmp_path: Path, shard: str) -> None:
    folder(tmp_path, first={"a": np.zeros(1, np.float32)})
    write_index(tmp_path, {"a": shard})
    with pytest.raises(ModelError, match="not a plain file name"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize(
    "index", ["{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "[", "[]", "[" * 9999]
)
def test_an_unusable_index_is_refused(tmp_path: Path, index: str) -> None:
    folder(tmp_path, first={"a": np.zeros(1, np.float32)})
    (tmp_path / INDEX).write_text(index)
    with pytest.raises(ModelError, match=r"index\.json"):
        SafetensorsFolder(tmp_path)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    folder(tmp_path, model={"a": np.zeros(1, np.float32)})
    (tmp_path / "config.json").unlink()
    with pytest.raises(ModelError, match=r"no config\.json"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize(
    ("header", "data", "reason"),
    [
        ({"a": entry()}, b"", "incomplete"),
        ({"a": entry()}, bytes(3), "is incomplete: .* describes 4 bytes of tensors, but the file holds 3"),
        ({"a": entry()}, bytes(5), "goes on behind its last tensor: .* 4 bytes .* holds 5"),
        ({"a": entry(), "b": entry()}, bytes(4), "'b' begins at byte 0 instead of 4"),
        ({"a": entry(), "b": entry(offsets=[8, 12])}, bytes(12), "'b' begins at byte 8 instead of 4"),
        ({"a": entry(shape=[2])}, bytes(4), "do not fit F32 of shape"),
        ({"a": entry(shape=[-1])}, bytes(4), "has the shape"),
        ({"a": entry(shape="1")}, bytes(4), "has the shape"),
        ({"a": entry(shape=[True])}, bytes(4), "has the shape"),
        ({"a": entry(offsets=[4, 0])}, bytes(4), "do not fit"),
        ({"a": entry(offsets=[0])}, bytes(4), "data_offsets"),
        ({"a": entry(dtype="F99")}, bytes(4), "unknown dtype 'F99'"),
        ({"a": entry(dtype="F4", offsets=[0, 1])}, bytes(1), "do not fit F4"),
        ({"a": 5}, b"", "not described by an object"),
        ([], b"", "not an object"),
        (b"{", b"", "malformed"),
        (b"\xff\xfe", b"", "malformed"),
        (b"[" * 99999, b"", "malformed"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: Any, data: bytes, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        read_header(raw(tmp_path / "x.safetensors", header, data))


@pytest.mark.parametrize(
    "content", [b"", b"1234567", struct.pack("<Q", 2**62), struct.pack("<Q", 99) + b"{}"]
)
def test_a_file_too_short_for_its_header_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="truncated or not a safetensors file"):
        read_header(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=5))
def test_no_damage_does_more_than_raise_a_model_error(tmp_path: Path, edits: list[tuple[int, int]]) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": np.zeros((2, 3), np.float32), "b": np.zeros(5, np.float16)}, path)
    data = bytearray(path.read_bytes())
    for place, value in edits:
        data[place % len(data)] = value
    path.write_bytes(data)
    with suppress(ModelError):
        read_header(path)
