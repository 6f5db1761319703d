"""A tokenizer from a folder's tokenizer.json, or tokenizer.model, and the files beside it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import ModelError
from penstock.hub.safetensors import read_json
from penstock.text.from_sentencepiece import read_sentencepiece
from penstock.text.pieces import Kind, bpe, unigram, unreachable
from penstock.text.vocabulary import Spelling, Vocabulary, end_ids, is_turn_marker

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the two kinds of file say in their own ways."""

    backend: Any
    spelling: Spelling
    strips_leading_space: bool
    continued: Any = None
    plain_model: Any = None
    begins: bool | None = None  # whether texts begin with the begin token, if nothing else says
    named: Mapping[str, str] = field(default_factory=dict)  # tokens that the file itself names


def read_folder(path: Path) -> Vocabulary:
    """Read tokenizer.json, or else tokenizer.model, and what the configuration files beside it add."""
    settings = _optional(path / "tokenizer_config.json")
    parts = _parts(path, settings)
    backend = parts.backend
    special = {token.content: i for i, token in backend.get_added_tokens_decoder().items() if token.special}
    named = {name: text for name in _NAMED if (text := _content(settings.get(name))) is not None}
    named = {**{name: text for name, text in parts.named.items() if name not in settings}, **named}
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
        spelling=parts.spelling,
        special=special,
        bos_token_id=bos,
        eos_token_ids=end_ids(eos, special),
        add_bos=_adds_bos(parts, bos, settings),
        add_eos=settings.get("add_eos_token") is True,
        chat_template=_template(path, settings),
        named=named,
        continued=parts.continued,
        strips_leading_space=parts.strips_leading_space,
        plain_model=parts.plain_model,
    )


def _parts(path: Path, settings: dict[str, Any]) -> _Parts:
    if (file := path / "tokenizer.json").is_file():
        description = read_json(file)
        backend, plain_model = _backend(file, description)
        return _Parts(
            backend=backend,
            spelling=_spelling(description, file),
            strips_leading_space=_strips(description.get("decoder")),
            continued=_continued(description.get("pre_tokenizer")),
            plain_model=plain_model,
        )
    if (file := path / "tokenizer.model").is_file():
        return _sentencepiece(file, settings)
    raise ModelError(
        f"{path} has neither a tokenizer.json nor a tokenizer.model, the tokenizer files Penstock reads; "
        "save one there with transformers' `tokenizer.save_pretrained`."
    )


def _sentencepiece(file: Path, settings: dict[str, Any]) -> _Parts:
    model = read_sentencepiece(file)
    pieces = model.pieces
    special = {
        text: number
        for number, (text, kind) in enumerate(zip(pieces.texts, pieces.kinds, strict=True))
        if kind in (Kind.CONTROL, Kind.UNKNOWN) or (kind == Kind.USER_DEFINED and is_turn_marker(text))
    }
    plain_model = None
    try:
        if model.unigram:
            backend, plain_model = unigram(pieces, special)
        else:
            backend = bpe(pieces, special)
        _add(backend, settings.get("added_tokens_decoder"))
    except Exception as error:  # the library's own, of what the file says
        raise ModelError(f"The tokenizer in {file} cannot be built: {error}.") from None
    ids = {"bos_token": model.bos, "eos_token": model.eos, "unk_token": pieces.unknown}
    return _Parts(
        backend=backend,
        spelling="sentencepiece",
        strips_leading_space=pieces.space_first,
        plain_model=plain_model,
        begins=not model.unigram,
        named={name: pieces.texts[number] for name, number in ids.items() if number is not None},
    )


def _add(backend: Any, described: Any) -> None:
    """Tokens that were added to the vocabulary afterwards, as tokenizer_config.json lists them by id."""
    from tokenizers import AddedToken

    entries = described.items() if isinstance(described, dict) else ()
    for _, entry in sorted((int(number), entry) for number, entry in entries if str(number).isdecimal()):
        token = AddedToken(
            entry["content"],
            special=bool(entry.get("special")) or is_turn_marker(entry["content"]),
            normalized=False,
            lstrip=bool(entry.get("lstrip")),
            rstrip=bool(entry.get("rstrip")),
            single_word=bool(entry.get("single_word")),
        )
        (backend.add_special_tokens if token.special else backend.add_tokens)([token])


def _backend(file: Path, description: dict[str, Any]) -> tuple[Any, Any]:
    """The library's tokenizer, and the model that cannot spell markers, if it needs one."""
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_file(str(file))
        _promote(backend)
        special = {t.content for t in backend.get_added_tokens_decoder().values() if t.special}
        plain_model = _plain_model(description["model"], special)
    except Exception as error:
        raise ModelError(f"{file} is not a usable tokenizer: {error}.") from None
    # Both are meant for training batches; here they would cut prompts and add ids nobody asked for.
    backend.no_truncation()
    backend.no_padding()
    return backend, plain_model


def _promote(backend: Any) -> None:
    """Make markers of turns control tokens where the file says that they are ordinary."""
    from tokenizers import AddedToken

    for token in backend.get_added_tokens_decoder().values():
        if not token.special and is_turn_marker(token.content):
            backend.add_special_tokens(
                [
                    AddedToken(
                        token.content,
                        special=True,
                        normalized=token.normalized,
                        lstrip=token.lstrip,
                        rstrip=token.rstrip,
                        single_word=token.single_word,
                    )
                ]
            )


def _plain_model(model: dict[str, Any], special: set[str]) -> Any:
    """The same model without the ways to spell a marker, if it has any; None if it has none."""
    from tokenizers import Tokenizer, models

    if model["type"] == "Unigram":
        vocabulary = [
            (unreachable(text) if text in special else text, score) for text, score in model["vocab"]
        ]
        return models.Unigram(vocabulary, model.get("unk_id"), model.get("byte_fallback", False))
    if model["type"] != "BPE":
        return None
    pairs = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model["merges"]]
    kept = [pair for pair in pairs if "".join(pair) not in special]
    if len(kept) == len(pairs):
        return None
    carrier = json.loads(Tokenizer(models.BPE()).to_str())
    return Tokenizer.from_str(json.dumps({**carrier, "model": {**model, "merges": kept}})).model


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


def _adds_bos(parts: _Parts, bos: int | None, settings: dict[str, Any]) -> bool:
    if bos is None:
        return False
    if isinstance(said := settings.get("add_bos_token"), bool):
        return said
    if parts.begins is not None:
        return parts.begins
    return bool(parts.backend.encode("", add_special_tokens=True).ids[:1] == [bos])


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
