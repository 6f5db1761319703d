"""The tokenizer: text to token ids and back, with control tokens under control."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import InvalidRequestError
from penstock.text import byte_level
from penstock.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from penstock.hub import ModelFiles

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """One model's tokenizer. Safe to share between threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._parsing = vocabulary.backend
        self._plain = _without_special(vocabulary)
        added = self._parsing.get_added_tokens_decoder()
        self._added = {token_id: token.content for token_id, token in added.items()}
        self.vocab_size: int = 1 + max(self._parsing.get_vocab(with_added_tokens=True).values())
        self.bos_token_id = vocabulary.bos_token_id
        self.eos_token_ids = vocabulary.eos_token_ids
        self.special_ids = frozenset(vocabulary.special.values())
        self.chat_template = vocabulary.chat_template
        self._bytes: list[bytes | None] = [None] * self.vocab_size  # filled as tokens are met

    @classmethod
    def load(cls, files: ModelFiles) -> Tokenizer:
        """The tokenizer of a model on the disk: its tokenizer.json, or built from its GGUF metadata."""
        if files.format == "gguf":
            from penstock.text.from_gguf import read_gguf

            return cls(read_gguf(files.path))
        from penstock.text.from_json import read_folder

        return cls(read_folder(files.path))

    def encode(self, text: str, *, parse_special: bool = True, add_bos: bool | None = None) -> list[int]:
        """Token ids of a text. `parse_special=False` keeps "<|im_end|>" and its like ordinary text."""
        backend = self._parsing if parse_special else self._plain
        try:
            ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        except UnicodeEncodeError as error:
            raise InvalidRequestError(
                f"The text holds a lone surrogate (U+{ord(text[error.start]):04X} at character {error.start}), "
                "which is no character; remove it."
            ) from None
        wanted = self._vocabulary.add_bos if add_bos is None else add_bos
        return [self.bos_token_id, *ids] if wanted and self.bos_token_id is not None else ids

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes one token stands for; none for an id that is only padding of the vocabulary."""
        try:
            known = self._bytes[token_id]
        except IndexError:
            return b""
        if known is None:
            known = self._bytes[token_id] = self._spell(token_id)
        return known

    def token_text(self, token_id: int) -> str:
        """One token as text; bytes that are not whole characters show as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of a whole sequence."""
        hidden = self.special_ids if skip_special else frozenset()
        text = b"".join([self.token_bytes(i) for i in ids if i not in hidden]).decode("utf-8", errors="replace")
        return text.removeprefix(" ") if self._vocabulary.strips_leading_space else text

    def _spell(self, token_id: int) -> bytes:
        text = self._added.get(token_id)
        if text is not None:
            return text.encode("utf-8")
        token = self._parsing.id_to_token(token_id)
        if token is None:
            return b""
        if self._vocabulary.spelling == "byte_level":
            return byte_level.to_bytes(token)
        if match := _BYTE_TOKEN.fullmatch(token):
            return bytes([int(match[1], 16)])
        return token.replace("▁", " ").encode("utf-8")


def _without_special(vocabulary: Vocabulary) -> object:
    from tokenizers import Tokenizer as Backend

    source = vocabulary.backend
    plain = Backend(source.model)  # the model is shared, not copied
    plain.normalizer = source.normalizer
    plain.pre_tokenizer = source.pre_tokenizer
    for _, token in sorted(source.get_added_tokens_decoder().items()):
        plain.add_special_tokens([token]) if token.special else plain.add_tokens([token])
    plain.encode_special_tokens = True
    return plain
