"""A tokenizer from the metadata of a GGUF file (byte-level BPE)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ModelError
from penstock.hub.gguf import GGUFFile
from penstock.text.vocabulary import Vocabulary, end_ids

if TYPE_CHECKING:
    from tokenizers import pre_tokenizers

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # tokenizer.ggml.token_type

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class _Style:
    """How a family of models cuts text into words before merging."""

    patterns: tuple[str, ...]  # what each finds is cut out of what the ones before it left
    whole_words: bool = False  # a word that is in the vocabulary is taken whole, whatever the merges say
    nfc: bool = False
    add_bos: bool = False  # unless the file says otherwise


_WORDS = _Style((_GPT2,))
_WORDS_AND_DIGITS = _Style((r"\p{N}", _GPT2))
_LLAMA = _Style((_LLAMA3,), whole_words=True, add_bos=True)
# What llama.cpp does with a file that does not say; such files come from converters that did not know.
_UNSAID = _Style((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
_STYLES = {
    "default": _UNSAID,
    "gpt-2": _WORDS,
    "phi-2": _WORDS,
    "refact": _WORDS_AND_DIGITS,
    "smollm": _WORDS_AND_DIGITS,
    "starcoder": _WORDS_AND_DIGITS,
    "llama-bpe": _LLAMA,
    "llama-v3": _LLAMA,
    "llama3": _LLAMA,
    "qwen2": _Style((_LLAMA3.replace("{1,3}", ""),), nfc=True),
}


def read_gguf(path: Path) -> Vocabulary:
    """Build the tokenizer a GGUF file describes."""
    file = GGUFFile(path)
    model = file.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise ModelError(
            f"{path} has a tokenizer of kind {model!r}, and Penstock builds only 'gpt2' (byte-level BPE) "
            "from GGUF metadata so far; use the model's safetensors folder with its tokenizer.json."
        )
    style = _style(file.get("tokenizer.ggml.pre", "default"), path)
    tokens, merges, kinds = _lists(file, path)
    special = {text: i for i, text in enumerate(tokens) if kinds[i] in (_CONTROL, _UNKNOWN)}
    ordinary = [text for i, text in enumerate(tokens) if kinds[i] == _USER_DEFINED]
    bos, eos = _token_id(file, "bos", len(tokens)), _token_id(file, "eos", len(tokens))
    eot, eom = _token_id(file, "eot", len(tokens)), _token_id(file, "eom", len(tokens))
    named = {
        f"{name}_token": tokens[token_id]
        for name, token_id in (
            ("bos", bos),
            ("eos", eos),
            ("unk", _token_id(file, "unknown", len(tokens))),
            ("pad", _token_id(file, "padding", len(tokens))),
        )
        if token_id is not None
    }
    template = file.get("tokenizer.chat_template")
    return Vocabulary(
        backend=_backend(tokens, merges, style, special, ordinary, path),
        spelling="byte_level",
        special=special,
        bos_token_id=bos,
        eos_token_ids=end_ids((eos, eot, eom), special),
        add_bos=bos is not None and bool(file.get("tokenizer.ggml.add_bos_token", style.add_bos)),
        chat_template=template if isinstance(template, str) else None,
        named=named,
    )


def _style(name: Any, path: Path) -> _Style:
    try:
        return _STYLES[name]
    except (KeyError, TypeError):
        raise ModelError(
            f"{path} wants the pre-tokenizer {name!r}, which Penstock does not know; known are "
            f"{', '.join(sorted(_STYLES))}. Use the model's safetensors folder with its tokenizer.json."
        ) from None


def _lists(file: GGUFFile, path: Path) -> tuple[list[str], list[tuple[str, str]], list[int]]:
    tokens = file.get("tokenizer.ggml.tokens")
    merges = file.get("tokenizer.ggml.merges")
    kinds = file.get("tokenizer.ggml.token_type", [1] * len(tokens or ()))
    for name, value, kind in (("tokens", tokens, str), ("merges", merges, str), ("token_type", kinds, int)):
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise ModelError(f"{path} has no usable tokenizer.ggml.{name}; its tokenizer cannot be built.")
    if not tokens or len(kinds) != len(tokens):
        raise ModelError(f"{path} has {len(tokens)} tokens and {len(kinds)} token types; the two must agree.")
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    if not all(len(pair) == 2 for pair in pairs):
        raise ModelError(f"{path} has a merge that is not two tokens with a space between them.")
    return tokens, pairs, kinds


def _token_id(file: GGUFFile, name: str, size: int) -> int | None:
    value = file.get(f"tokenizer.ggml.{name}_token_id")
    # Converters write -1 or 2**32-1 for "none".
    return value if isinstance(value, int) and 0 <= value < size else None


def _backend(
    tokens: list[str],
    merges: list[tuple[str, str]],
    style: _Style,
    special: dict[str, int],
    ordinary: list[str],
    path: Path,
) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    vocabulary = {text: i for i, text in enumerate(tokens)}
    try:
        model = models.BPE(vocab=vocabulary, merges=merges, ignore_merges=style.whole_words)
    except Exception as error:
        raise ModelError(f"The tokenizer in {path} cannot be built: {error}.") from None
    backend = Tokenizer(model)
    if style.nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _pre_tokenizer(style)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in ordinary])
    return backend


def _pre_tokenizer(style: _Style) -> pre_tokenizers.PreTokenizer:
    from tokenizers import Regex, pre_tokenizers

    cuts = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in style.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*cuts, to_bytes])
