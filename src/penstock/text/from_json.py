"""A tokenizer from a folder's tokenizer.json and the files beside it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.errors import ModelError
from penstock.hub.safetensors import read_json
from penstock.text.vocabulary import Spelling, Vocabulary, end_ids

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")


def read_folder(path: Path) -> Vocabulary:
    """Read tokenizer.json, and what generation_config.json, tokenizer_config.json and config.json add."""
    file = path / "tokenizer.json"
    if not file.is_file():
        raise ModelError(
            f"{path} has no tokenizer.json, the only tokenizer file Penstock reads; "
            "save one there with transformers' `tokenizer.save_pretrained`."
        )
    description = read_json(file)
    backend = _backend(file)
    settings = _optional(path / "tokenizer_config.json")
    special = {token.content: i for i, token in backend.get_added_tokens_decoder().items() if token.special}
    named = {name: text for name in _NAMED if (text := _content(settings.get(name))) is not None}
    configs = [_optional(path / "generation_config.json"), _optional(path / "config.json")]
    # A null bos_token means none, even if config.json, which the tokenizer's author did not write, has one.
    silent = "bos_token" in settings and "bos_token" not in named
    bos = None if silent else _first_id(backend, named.get("bos_token"), configs, "bos_token_id")
    if bos is not None and "bos_token" not in named:
        named["bos_token"] = backend.id_to_token(bos)
    eos = [backend.token_to_id(named["eos_token"])] if "eos_token" in named else []
    eos += [i for config in configs for i in _ids(config.get("eos_token_id"))]
    if eos and "eos_token" not in named and (text := backend.id_to_token(eos[0])) is not None:
        named["eos_token"] = text
    return Vocabulary(
        backend=backend,
        spelling=_spelling(description, file),
        special=special,
        bos_token_id=bos,
        eos_token_ids=end_ids(eos, special),
        add_bos=_adds_bos(backend, bos, settings),
        chat_template=_template(path, settings),
        named=named,
        continued=_continued(description.get("pre_tokenizer")),
        strips_leading_space=_strips(description.get("decoder")),
        add_eos=settings.get("add_eos_token") is True,
    )


def _backend(file: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_file(str(file))
    except Exception as error:
        raise ModelError(f"{file} is not a usable tokenizer: {error}.") from None
    # Both are meant for training batches; here they would cut prompts and add ids nobody asked for.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _spelling(description: dict[str, Any], file: Path) -> Spelling:
    kinds = set(_kinds(description.get("decoder")))
    if "ByteLevel" in kinds:
        return "byte_level"
    if kinds & {"Metaspace", "ByteFallback"} or "Replace" in kinds:
        return "sentencepiece"
    if "WordPiece" in kinds:
        return "wordpiece"
    shown = ", ".join(sorted(kinds)) or "none"
    raise ModelError(
        f"{file} has a decoder of kind {shown}; Penstock knows byte-level, SentencePiece-style and "
        "WordPiece tokenizers."
    )


def _kinds(part: Any) -> Iterator[str]:
    """The types in a decoder, also inside sequences."""
    if isinstance(part, dict):
        yield str(part.get("type"))
        for inner in part.get("decoders") or ():
            yield from _kinds(inner)


def _strips(part: Any) -> bool:
    """Whether decoding removes the leading space that encoding added."""
    if not isinstance(part, dict):
        return False
    if part.get("type") == "WordPiece":
        return True
    if part.get("type") == "Metaspace":
        return (
            part.get("prepend_scheme", "always") != "never"
            and part.get("add_prefix_space", True) is not False
        )
    if part.get("type") == "Strip":
        return part.get("content") == " " and bool(part.get("start"))
    return any(_strips(inner) for inner in part.get("decoders") or ())


def _continued(part: Any) -> Any:
    """The pre-tokenizer without the space that it puts before the first word of a text only."""
    from tokenizers import Tokenizer, models

    edited = copy.deepcopy(part)
    parts = [edited, *(edited.get("pretokenizers") or ())] if isinstance(edited, dict) else []
    first_only = [
        inner for inner in parts if isinstance(inner, dict) and inner.get("prepend_scheme") == "first"
    ]
    if not first_only:
        return None
    for inner in first_only:
        inner["prepend_scheme"] = "never"
    carrier = json.loads(Tokenizer(models.BPE()).to_str())
    return Tokenizer.from_str(json.dumps({**carrier, "pre_tokenizer": edited})).pre_tokenizer


def _adds_bos(backend: Any, bos: int | None, settings: dict[str, Any]) -> bool:
    if bos is None:
        return False
    if isinstance(said := settings.get("add_bos_token"), bool):
        return said
    return bool(backend.encode("", add_special_tokens=True).ids[:1] == [bos])


def _first_id(backend: Any, text: str | None, configs: list[dict[str, Any]], key: str) -> int | None:
    if text is not None and (token_id := backend.token_to_id(text)) is not None:
        return int(token_id)
    for config in configs:
        for token_id in _ids(config.get(key)):
            if backend.id_to_token(token_id) is not None:
                return token_id
    return None


def _ids(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if type(item) is int and item >= 0]


def _content(value: Any) -> str | None:
    """A token named in tokenizer_config.json: text, or an object with it."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _template(path: Path, settings: dict[str, Any]) -> str | None:
    file = path / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"Cannot read {file}: {error}.") from None
    template = settings.get("chat_template")
    if isinstance(template, list):  # several under names; "default" is the one for chat
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
