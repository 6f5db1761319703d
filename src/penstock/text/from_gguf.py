"""A tokenizer from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import ModelError
from penstock.hub.gguf import GGUFFile
from penstock.text import pieces
from penstock.text.pieces import Kind, Pieces, is_padding
from penstock.text.splits import STYLES, pre_tokenizer
from penstock.text.vocabulary import Spelling, Vocabulary, end_ids, is_turn_marker
from penstock.text.wordpiece import wordpiece

# Phi-3's markers take the white space behind them, all but these; no file says so.
_PHI3_KEEPS = frozenset({"<unk>", "<s>", "<|endoftext|>"})


@dataclass(frozen=True, slots=True)
class _Source:
    """What every kind of tokenizer is built from."""

    file: GGUFFile
    path: Path
    tokens: list[str]
    kinds: list[int]
    special: dict[str, int]
    ids: dict[str, int]  # "bos" and the like

    def text(self, name: str) -> str | None:
        return self.tokens[self.ids[name]] if name in self.ids else None

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.file.get(f"tokenizer.ggml.{name}", default))


@dataclass(frozen=True, slots=True)
class _Built:
    """What the kinds differ in."""

    backend: Any
    spelling: Spelling
    add_bos: bool  # unless the file says otherwise
    add_eos: bool = False  # likewise
    strips_leading_space: bool = False
    plain_model: Any = None
    frame: tuple[str, str] | None = field(default=None)  # of a text, and of a pair


def read_gguf(path: Path) -> Vocabulary:
    """Build the tokenizer a GGUF file describes."""
    file = GGUFFile(path)
    model = file.get("tokenizer.ggml.model")
    try:
        build = _KINDS[model]
    except (KeyError, TypeError):
        raise ModelError(
            f"{path} has a tokenizer of kind {model!r}, and Penstock builds {', '.join(_KINDS)} from GGUF "
            "metadata; use the model's safetensors folder with its tokenizer.json."
        ) from None
    source = _source(file, path)
    try:
        built = build(source)
        if built.frame is not None:
            _set_frame(built.backend, built.frame, source)
    except ModelError:
        raise
    except Exception as error:  # the library's own, of what the file says
        raise ModelError(f"The tokenizer in {path} cannot be built: {error}.") from None
    ids, special = source.ids, source.special
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding", "cls": "cls", "sep": "separator"}
    template = file.get("tokenizer.chat_template")
    return Vocabulary(
        backend=built.backend,
        spelling=built.spelling,
        special=special,
        bos_token_id=ids.get("bos"),
        eos_token_ids=end_ids((ids.get("eos"), ids.get("eot"), ids.get("eom")), special),
        add_bos="bos" in ids and source.flag("add_bos_token", built.add_bos),
        add_eos=source.flag("add_eos_token", built.add_eos),
        chat_template=template if isinstance(template, str) else None,
        named={f"{short}_token": source.tokens[ids[name]] for short, name in names.items() if name in ids},
        strips_leading_space=built.strips_leading_space,
        plain_model=built.plain_model,
        unused=frozenset(
            number
            for number, (text, kind) in enumerate(zip(source.tokens, source.kinds, strict=True))
            if is_padding(text, kind)
        ),
    )


def _byte_level(source: _Source) -> _Built:
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    name = source.file.get("tokenizer.ggml.pre", "default")
    try:
        style = STYLES[name]
    except (KeyError, TypeError):
        raise ModelError(
            f"{source.path} wants the pre-tokenizer {name!r}, which Penstock does not know; known are "
            f"{', '.join(sorted(STYLES))}. Use the model's safetensors folder with its tokenizer.json."
        ) from None
    vocabulary = {text: number for number, text in enumerate(source.tokens)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=_merges(source), ignore_merges=style.whole_words))
    if style.nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizer(style)
    backend.decoder = decoders.ByteLevel()
    ordinary = [
        text
        for text, kind in zip(source.tokens, source.kinds, strict=True)
        if kind == Kind.USER_DEFINED and text not in source.special and not is_padding(text, kind)
    ]
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in source.special])
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in ordinary])
    return _Built(backend, "byte_level", add_bos=style.add_bos)


def _sentencepiece(source: _Source) -> _Built:
    made = _pieces(source)
    backend = pieces.bpe(made, source.special)
    return _Built(backend, "sentencepiece", add_bos=True, strips_leading_space=made.space_first)


def _unigram(source: _Source) -> _Built:
    made = _pieces(source)
    backend, plain = pieces.unigram(made, source.special)
    begin, end = source.flag("add_bos_token", False), source.flag("add_eos_token", True)
    frame = None
    if begin and end and {"bos", "eos"} <= source.ids.keys():  # as XLM-RoBERTa has it
        frame = ("bos $A eos", "bos $A eos eos $B eos")
    elif end and "eos" in source.ids:
        frame = ("$A eos", "$A eos $B eos")
    return _Built(
        backend,
        "sentencepiece",
        add_bos=False,
        add_eos=True,
        strips_leading_space=made.space_first,
        plain_model=plain,
        frame=frame,
    )


def _bert(source: _Source) -> _Built:
    lowercase = source.flag("normalizer.lowercase", True)
    backend = wordpiece(
        source.tokens,
        source.special,
        source.text("unknown") or "[UNK]",
        lowercase=lowercase,
        strip_accents=source.flag("normalizer.strip_accents", lowercase),
    )
    frame = None
    if {"cls", "separator"} <= source.ids.keys():
        frame = ("cls $A separator", "cls $A separator $B:1 separator:1")
    return _Built(backend, "wordpiece", add_bos=False, strips_leading_space=True, frame=frame)


_KINDS: dict[str, Callable[[_Source], _Built]] = {
    "gpt2": _byte_level,
    "llama": _sentencepiece,
    "t5": _unigram,
    "bert": _bert,
}


def _source(file: GGUFFile, path: Path) -> _Source:
    tokens = _list(file, path, "tokens", str)
    kinds = _list(file, path, "token_type", int, [Kind.NORMAL] * len(tokens))
    if not tokens or len(kinds) != len(tokens):
        raise ModelError(f"{path} has {len(tokens)} tokens and {len(kinds)} token types; the two must agree.")
    special = {
        text: number
        for number, text in enumerate(tokens)
        if text
        and not is_padding(text, kinds[number])
        and (
            kinds[number] in (Kind.CONTROL, Kind.UNKNOWN)
            or (kinds[number] == Kind.USER_DEFINED and is_turn_marker(text))
        )
    }
    return _Source(file, path, tokens, kinds, special, _ids(file, len(tokens)))


def _list(file: GGUFFile, path: Path, name: str, kind: Any, default: Any = None) -> list[Any]:
    value = file.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise ModelError(f"{path} has no usable tokenizer.ggml.{name}; its tokenizer cannot be built.")
    return value


def _ids(file: GGUFFile, size: int) -> dict[str, int]:
    names = ("bos", "eos", "eot", "eom", "unknown", "padding", "cls", "separator")
    found: dict[str, int] = {}
    for name in names:
        value = file.get(f"tokenizer.ggml.{name}_token_id")
        # Converters write -1 or 2**32-1 for "none".
        if isinstance(value, int) and 0 <= value < size:
            found[name] = value
    # The format's own misspelling; and BERT's two, which newer files call by the common names.
    separator = file.get("tokenizer.ggml.seperator_token_id")
    if isinstance(separator, int) and 0 <= separator < size:
        found.setdefault("separator", separator)
    if file.get("tokenizer.ggml.model") == "bert":
        found.setdefault("cls", found.pop("bos", -1))
        found = {name: value for name, value in found.items() if value >= 0}
    return found


def _merges(source: _Source) -> list[tuple[str, str]]:
    merges = _list(source.file, source.path, "merges", str)
    # A part may itself begin with a space: pieces of raw text do.
    cuts = [merge.find(" ", 1) for merge in merges]
    if any(cut <= 0 for cut in cuts):
        raise ModelError(f"{source.path} has a merge that is not two tokens with a space between them.")
    return [(merge[:cut], merge[cut + 1 :]) for merge, cut in zip(merges, cuts, strict=True)]


def _pieces(source: _Source) -> Pieces:
    file = source.file
    scores = _list(file, source.path, "scores", (int, float))
    if len(scores) != len(source.tokens):
        raise ModelError(
            f"{source.path} has {len(source.tokens)} tokens and {len(scores)} scores; the two must agree."
        )
    phi3 = file.get("general.architecture") == "phi3"
    strips = frozenset(source.special) - _PHI3_KEEPS if phi3 else frozenset()
    return Pieces(
        texts=source.tokens,
        scores=scores,
        kinds=source.kinds,
        unknown=source.ids.get("unknown", _unknown(source.kinds)),
        space_first=source.flag("add_space_prefix", True),
        single_spaces=source.flag("remove_extra_whitespaces", False),
        character_map=bytes(
            value & 0xFF for value in _list(file, source.path, "precompiled_charsmap", int, [])
        ),
        strips_right=strips,
    )


def _unknown(kinds: list[int]) -> int | None:
    return kinds.index(Kind.UNKNOWN) if Kind.UNKNOWN in kinds else None


def _set_frame(backend: Any, frame: tuple[str, str], source: _Source) -> None:
    """Let the backend put markers around texts; a frame names them by their roles."""
    from tokenizers import processors

    roles = {role: number for role, number in source.ids.items() if role in " ".join(frame)}
    backend.post_processor = processors.TemplateProcessing(
        single=frame[0], pair=frame[1], special_tokens=list(roles.items())
    )
