"""Models already on the disk: what a path holds, and why it cannot be used if it cannot."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.errors import ModelError
from penstock.hub.files import ModelFiles
from penstock.hub.gguf import MAGIC, GGUFFile
from penstock.hub.regular import open_regular
from penstock.hub.safetensors import SafetensorsFolder
from penstock.hub.split import split_name, stands_for_model

PICKLE_SUFFIXES = frozenset({".bin", ".pth", ".pt", ".ckpt", ".pkl", ".pickle"})
# "name.Q4_K_M.gguf", "name-f16.gguf": the quantization is not part of the model's name.
_QUANTIZATION = re.compile(
    r"[.\-_](?:UD-)?(?:I?Q\d+\w*|TQ\d\w*|[bB]?[fF](?:16|32)|MXFP4\w*|NVFP4)$", re.IGNORECASE
)


def open_path(path: Path) -> ModelFiles:
    """The model at a path that exists; headers are read and checked."""
    return _open_folder(path) if path.is_dir() else _open_file(path)


def refuse_pickle(name: str) -> None:
    """Raise if the file name is that of a pickled checkpoint."""
    if Path(name).suffix.lower() in PICKLE_SUFFIXES:
        raise ModelError(
            f"{name} is refused: {Path(name).suffix} files are Python pickles, which can run code when "
            "they are opened. Convert the model to safetensors or GGUF and give that."
        )


def gguf_name(path: Path) -> str:
    """A model name from a GGUF file name, without its quantization and which part it is."""
    name, _ = split_name(path) or (path.name, 1)
    stem = name[: -len(".gguf")] if name.lower().endswith(".gguf") else name
    return _QUANTIZATION.sub("", stem) or stem


def _open_file(path: Path) -> ModelFiles:
    refuse_pickle(str(path))
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        raise ModelError(
            f"{path} is one file of a model; give the folder that holds it and config.json: {path.parent}."
        )
    if suffix != ".gguf" and not _has_gguf_magic(path):
        raise ModelError(f"{path} is neither a GGUF file nor a folder with config.json and *.safetensors.")
    file = GGUFFile(path)
    if not file.tensors:
        raise ModelError(f"{path} holds no tensors, only metadata; give the model itself.")
    return ModelFiles(gguf_name(path), path, "gguf")


def _open_folder(path: Path) -> ModelFiles:
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise ModelError(f"Cannot read the folder {path}: {error.strerror or error}.") from None
    tensors = [name for name in names if name.endswith(".safetensors")]
    ggufs = [name for name in names if name.lower().endswith(".gguf") and stands_for_model(Path(name))]
    if tensors:
        SafetensorsFolder(path)
        return ModelFiles(path.resolve().name, path, "safetensors")
    if len(ggufs) == 1:
        return _open_file(path / ggufs[0])
    if ggufs:
        raise ModelError(f"{path} holds several GGUF files; give one of them: {', '.join(ggufs)}.")
    pickles = [name for name in names if Path(name).suffix.lower() in PICKLE_SUFFIXES]
    if pickles:
        refuse_pickle(str(path / pickles[0]))
    raise ModelError(f"{path} holds no model: expected config.json with *.safetensors, or a GGUF file.")


def _has_gguf_magic(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise ModelError(f"Cannot read {path}: {error.strerror or error}.") from None
