"""What a model's files say of pooling: how the hidden states of a text become its one vector. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.engine.request import Pooling
from penstock.errors import ConfigError, ModelError
from penstock.hub.gguf import GGUFFile
from penstock.hub.safetensors import read_json

# sentence-transformers' switches in 1_Pooling/config.json, one of which is on.
_SWITCHES: Mapping[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
# The same in newer files, by name.
_MODES: Mapping[str, Pooling] = {"cls": "cls", "mean": "mean", "lasttoken": "last"}
_GGUF_TYPES: Mapping[int, Pooling] = {1: "mean", 2: "cls", 3: "last", 4: "score"}
_MODULES = ("Transformer", "Pooling", "Normalize")


def choose_pooling(option: str, path: Path) -> Pooling | None:
    """What the `pooling` option means for a model; None: it gives no vectors."""
    if option == "auto":
        return stored_pooling(path)
    modes: Mapping[str, Pooling] = {"last": "last", "mean": "mean", "cls": "cls"}
    return modes.get(option)


def decoder_pooling(option: str, path: Path) -> Pooling | None:
    """The same for a decoder, whose first token has seen nothing of the text and which has no head."""
    chosen = choose_pooling(option, path)
    if chosen in (None, "last", "mean"):
        return chosen
    if option != "auto":
        raise ConfigError(f"pooling is {option}, but a decoder's vectors are made by last or mean.")
    raise ModelError(
        f"{path} asks for the pooling {chosen!r}, which a decoder cannot do; give --pooling last or mean "
        "for vectors, or none to serve it without."
    )


def stored_pooling(path: Path) -> Pooling | None:
    """What the model's own files say; None where they say nothing."""
    return _folder_pooling(path) if path.is_dir() else _gguf_pooling(path)


def unheeded(path: Path) -> list[str]:
    """What a sentence-transformers folder asks to be done to texts, and is not: sentences for the log."""
    found = []
    file = path / "config_sentence_transformers.json"
    if (
        path.is_dir()
        and file.is_file()
        and (prompt := read_json(file).get("default_prompt_name")) is not None
    ):
        found.append(f"{file} asks for the prompt {prompt!r} before every text; send texts with it in front.")
    file = path / "sentence_bert_config.json"
    if path.is_dir() and file.is_file() and read_json(file).get("do_lower_case") is True:
        found.append(f"{file} asks for texts in lower case; send them so if the tokenizer keeps capitals.")
    return found


def longest_input(path: Path) -> int | None:
    """The length in tokens that a sentence-transformers folder was made for, if it says so."""
    file = path / "sentence_bert_config.json"
    if not path.is_dir() or not file.is_file():
        return None
    longest = read_json(file).get("max_seq_length")
    return longest if type(longest) is int and longest > 0 else None


def _gguf_pooling(path: Path) -> Pooling | None:
    file = GGUFFile(path)
    kind = file.get(f"{file.get('general.architecture')}.pooling_type")
    if kind in (None, 0, -1):
        return None
    if kind not in _GGUF_TYPES:
        raise ModelError(f"{path} has the pooling_type {kind!r}; 1 (mean), 2 (cls) and 3 (last) are known.")
    return _GGUF_TYPES[kind]


def _folder_pooling(path: Path) -> Pooling | None:
    where = _pooling_folder(path)
    if where is None:
        return None
    file = where / "config.json"
    raw = read_json(file)
    if isinstance(mode := raw.get("pooling_mode"), str):
        on = [mode]
        modes = _MODES
    else:
        on = [name for name, value in raw.items() if name.startswith("pooling_mode_") and value is True]
        modes = _SWITCHES
    if len(on) != 1 or on[0] not in modes:
        raise ModelError(
            f"{file} asks for {' and '.join(on) or 'no pooling'}; it must be exactly one of "
            f"{', '.join(modes)}."
        )
    return modes[on[0]]


def _pooling_folder(path: Path) -> Path | None:
    """Where modules.json says the pooling is configured; the usual place where there is no such file."""
    file = path / "modules.json"
    if not file.is_file():
        usual = path / "1_Pooling"
        return usual if (usual / "config.json").is_file() else None
    found = None
    for module in _modules(file):
        kind = str(module.get("type")).rpartition(".")[2]
        if kind not in _MODULES:
            raise ModelError(
                f"{file} has a module of type {module.get('type')!r} behind the encoder; only "
                f"{', '.join(_MODULES)} can be computed, and without it the vectors would be others."
            )
        if kind == "Pooling":
            name = str(module.get("path"))
            if Path(name).name != name:  # a folder outside the model's is not the model's
                raise ModelError(f"{file} names the folder {name!r}, which is not a plain name.")
            found = path / name
    return found


def _modules(file: Path) -> list[dict[str, Any]]:
    try:
        modules = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{file} cannot be read: {error}.") from None
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ModelError(f"{file} must hold a list of modules.")
    return modules
