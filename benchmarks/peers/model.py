"""The model in the formats that peers read, each made once from the one GGUF file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
from gguf.quants import dequantize, quantize

from .environments import completed

WRITE_SECONDS = 900
PROGRAM = Path(__file__).with_name("safetensors_program.py")
Q4_0 = gguf.GGMLQuantizationType.Q4_0
REPLACED = gguf.GGMLQuantizationType.Q4_1  # what becomes Q4_0; tensors in other formats stay


def as_q4_0(source: Path, folder: Path, say: Callable[[str], None]) -> Path:
    """The same file with its Q4_1 tensors in Q4_0, which llama.cpp computes fastest."""
    target = folder / f"{source.stem}.as-Q4_0.gguf"
    if not target.is_file():
        say(f"writing {target.name}")
        folder.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        _rewrite(gguf.GGUFReader(source), part)
        part.rename(target)
    return target


def _rewrite(reader: gguf.GGUFReader, path: Path) -> None:
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":  # the writer writes these itself
            continue
        value = gguf.LlamaFileType.MOSTLY_Q4_0 if name == "general.file_type" else field.contents()
        inner = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        if tensor.tensor_type == REPLACED:
            values = dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, quantize(values, Q4_0), raw_dtype=Q4_0)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def as_safetensors(source: Path, folder: Path, python: Path, say: Callable[[str], None]) -> Path:
    """A folder of float32 safetensors, written by transformers in its own environment."""
    target = folder / f"{source.stem}.safetensors"
    if not target.is_dir():
        say(f"writing {target.name}")
        part = folder / f"{target.name}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        completed(
            "writing the GGUF as safetensors",
            [str(python), str(PROGRAM), str(source), str(part)],
            WRITE_SECONDS,
        )
        part.rename(target)
    return target
