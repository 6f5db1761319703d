"""BERT's tokenizer from a GGUF vocabulary, which marks where words begin rather than where they go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SPACE = "▁"


def wordpiece(
    tokens: Sequence[str],
    special: Mapping[str, int],
    unknown: str,
    *,
    lowercase: bool,
    strip_accents: bool,
) -> Any:
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

    vocabulary = {_hashed(text, special): number for number, text in enumerate(tokens)}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return backend


def _hashed(text: str, special: Mapping[str, int]) -> str:
    if text in special or (text.startswith("[") and text.endswith("]")):
        return text
    return text[1:] if text.startswith(SPACE) else f"##{text}"
