"""GGUF files: read as the `gguf` package reads them, and never trusted."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import ModelError
from penstock.hub.gguf import GGUFFile

QUANTIZED = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0"]


def write(path: Path, **arrays: np.ndarray) -> Path:
    """A small file with metadata of every kind, and the given float32 arrays."""
    writer = GGUFWriter(path, arch="llama")
    writer.add_uint8("k.u8", 200)
    writer.add_int16("k.i16", -300)
    writer.add_uint64("k.u64", 2**63)
    writer.add_float32("k.f32", 0.5)
    writer.add_float64("k.f64", 1e300)
    writer.add_bool("k.bool", True)
    writer.add_string("k.text", "Wasser fällt 😀")
    writer.add_array("k.ints", [1, -2, 3])
    writer.add_array("k.floats", [0.5, 0.25])
    writer.add_array("k.texts", ["", "a", "é", "<|im_end|>"])
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    return write(
        tmp_path / "small.gguf",
        **{"a.weight": rng.standard_normal((6, 64), np.float32), "b.bias": np.arange(5, dtype=np.float32)},
    )


def test_metadata_equals_what_the_gguf_package_reads(small: Path) -> None:
    reader = gguf.GGUFReader(small)
    expected = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert GGUFFile(small).metadata == expected
    assert expected["k.text"] == "Wasser fällt 😀"


def test_tensors_lie_where_the_gguf_package_finds_them(small: Path) -> None:
    ours = GGUFFile(small).tensors
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(small).tensors}
    assert set(ours) == set(theirs)
    for name, tensor in ours.items():
        assert tensor.shape == tuple(reversed(theirs[name].shape.tolist()))
        assert (tensor.offset, tensor.nbytes) == (theirs[name].data_offset, theirs[name].n_bytes)


def test_shapes_are_in_torch_order(small: Path) -> None:
    file = GGUFFile(small)
    assert file.tensors["a.weight"].shape == (6, 64)
    assert file.raw("a.weight").shape == (6, 256)  # bytes
    np.testing.assert_array_equal(file.dequantize("b.bias"), np.arange(5, dtype=np.float32))


@pytest.mark.parametrize("kind", QUANTIZED)
def test_every_type_comes_back_as_the_gguf_package_dequantizes_it(tmp_path: Path, kind: str) -> None:
    values = np.random.default_rng(1).standard_normal((4, 512), np.float32)
    packed = gguf.quants.quantize(values, GGMLQuantizationType[kind])
    writer = GGUFWriter(tmp_path / "q.gguf", arch="llama")
    writer.add_tensor("w", packed, raw_dtype=GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(tmp_path / "q.gguf")
    assert file.tensors["w"].type_name == kind
    result = file.dequantize("w")
    assert result.shape == (4, 512)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, gguf.quants.dequantize(packed, GGMLQuantizationType[kind]))


def test_the_default_model_reads_as_the_gguf_package_reads_it(default_model: Path) -> None:
    file, reader = GGUFFile(default_model), gguf.GGUFReader(default_model)
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type"):
        assert file.metadata[key] == reader.fields[key].contents()
    assert len(file.tensors) == len(reader.tensors) == 272
    assert file.tensors["token_embd.weight"].shape == (49152, 576)
    assert file.tensors["blk.0.ffn_up.weight"].type_name == "Q4_1"


def test_a_missing_key_gives_the_default_and_a_missing_tensor_a_sentence(small: Path) -> None:
    file = GGUFFile(small)
    assert file.get("no.such", 7) == 7
    with pytest.raises(ModelError, match=r"no tensor 'no\.such'"):
        file.dequantize("no.such")


def test_a_type_that_holds_no_weights_is_refused_when_it_is_used(tmp_path: Path) -> None:
    path = write(tmp_path / "i.gguf", indices=np.arange(8, dtype=np.int32))
    with pytest.raises(ModelError, match=r"'indices'.*I32"):
        GGUFFile(path).dequantize("indices")


@pytest.mark.parametrize("keep", [0, 1, 3, 4, 10, 24, 40, 100, 300, 450])
def test_a_truncated_header_is_said_to_be_so(small: Path, keep: int) -> None:
    small.write_bytes(small.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"small\.gguf (is not a usable GGUF file|is empty)"):
        GGUFFile(small)


def test_truncated_tensor_data_is_noticed_before_it_is_used(small: Path) -> None:
    small.write_bytes(small.read_bytes()[:-20])
    file = GGUFFile(small)
    with pytest.raises(ModelError, match=r"is truncated: tensor 'b\.bias' ends at byte"):
        _ = file.tensors


def test_a_file_that_is_something_else_is_said_to_be_so(tmp_path: Path) -> None:
    path = tmp_path / "readme.gguf"
    path.write_text("This is no model.")
    with pytest.raises(ModelError, match="begins with b'This' instead of b'GGUF'"):
        GGUFFile(path)


@pytest.mark.parametrize(
    ("version", "reason"), [(1, "version 1"), (9, "version 9"), (3 << 24, "it is big-endian")]
)
def test_other_versions_are_named(tmp_path: Path, version: int, reason: str) -> None:
    path = tmp_path / "v.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0))
    with pytest.raises(ModelError, match=reason):
        GGUFFile(path)


def write_split(folder: Path, stem: str, count: int, metadata: dict[str, int] | None = None) -> Path:
    """A model of one tensor in each part, as llama.cpp splits them; returns the first part."""
    for number in range(count):
        writer = GGUFWriter(folder / f"{stem}-{number + 1:05d}-of-{count:05d}.gguf", arch="llama")
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", count)
        for key, value in (metadata or {}).items() if number == 0 else ():
            writer.add_uint32(key, value)
        writer.add_tensor(f"t{number}.weight", np.full((2, 32), number, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return folder / f"{stem}-00001-of-{count:05d}.gguf"


def test_a_split_model_is_read_from_all_its_parts(tmp_path: Path) -> None:
    file = GGUFFile(write_split(tmp_path, "model", 3))
    assert list(file.tensors) == ["t0.weight", "t1.weight", "t2.weight"]
    for number in range(3):
        assert (file.dequantize(f"t{number}.weight") == number).all()


def test_a_later_part_points_to_the_first(tmp_path: Path) -> None:
    write_split(tmp_path, "model", 2)
    with pytest.raises(ModelError, match=r"give the first, model-00001-of-00002\.gguf"):
        GGUFFile(tmp_path / "model-00002-of-00002.gguf")


def test_parts_that_are_missing_misnamed_or_of_another_model_are_told(tmp_path: Path) -> None:
    first = write_split(tmp_path, "model", 3)
    first.rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelError, match=r"one of 3 parts .* does not end in -00001-of-00003\.gguf"):
        GGUFFile(tmp_path / "renamed.gguf")
    (tmp_path / "renamed.gguf").rename(first)
    (tmp_path / "model-00002-of-00003.gguf").unlink()
    with pytest.raises(ModelError, match=r"lacks 1 of the model's 3 parts, first model-00002-of-00003"):
        GGUFFile(first)
    whole = GGUFWriter(tmp_path / "model-00002-of-00003.gguf", arch="llama")
    whole.write_header_to_file()
    whole.write_kv_data_to_file()
    whole.close()
    with pytest.raises(ModelError, match="hold 2 tensors instead of 3"):
        GGUFFile(first)


def header(*pairs: bytes, tensors: tuple[bytes, ...] = ()) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def tensor(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (header(text("k") + struct.pack("<I", 77)), "unknown type 77"),
        (header(text("k") + struct.pack("<IIQ", 9, 0, 2**60)), "array has 1152921504606846976 elements"),
        (header(text("k") + struct.pack("<IIQ", 9, 4, 2**24)), "wants"),
        (header(text("k") + struct.pack("<IIQ", 9, 8, 2**24)), "wants"),
        (header(text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9), "nest deeper"),
        (header(struct.pack("<Q", 2**63)), "wants"),
        (header(*[text("k") + struct.pack("<IB", 0, 1)] * 2), "'k' appears twice"),
        (header(text("general.alignment") + struct.pack("<II", 4, 33)), "alignment 33"),
        (header(text("general.alignment") + struct.pack("<II", 4, 0)), "alignment 0"),
        (header(tensors=(tensor("t", (1, 1, 1, 1, 1)),)), "5 dimensions"),
        (header(tensors=(tensor("t", ()),)), "0 dimensions"),
        (header(tensors=(tensor("t", (4,), kind=99),)) + bytes(99), "unknown element type 99"),
        (header(tensors=(tensor("t", (33,), kind=2),)) + bytes(99), "rows of 33 elements"),
        (header(tensors=(tensor("t", (2**62, 2**62)),)) + bytes(99), "truncated"),
        (header(tensors=(tensor("t", (4,), offset=2**63),)) + bytes(99), "truncated"),
        (header(tensors=(tensor("t", (1,)), tensor("t", (1,)))) + bytes(99), "'t' appears twice"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=reason):
        _ = GGUFFile(path).tensors


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), min_size=1, max_size=6))
def test_no_damage_does_more_than_raise_a_model_error(small: Path, edits: list[tuple[int, int]]) -> None:
    data = bytearray(small.read_bytes())
    for place, value in edits:
        data[place % len(data)] = value
    damaged = small.with_name("damaged.gguf")
    damaged.write_bytes(data)
    with suppress(ModelError):
        file = GGUFFile(damaged)
        for name in file.tensors:
            file.raw(name)
