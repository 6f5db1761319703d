"""The tokenizer: text to token ids and back, with control tokens under control."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidRequestError
from penstock.text import byte_level
from penstock.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    import tokenizers

    from penstock.hub import ModelFiles

logger = logging.getLogger("penstock.text")

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOTHING: frozenset[int] = frozenset()


class Tokenizer:
    """One model's tokenizer. Safe to share between threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._parsing = vocabulary.backend
        self._plain = _plain(vocabulary, vocabulary.backend.pre_tokenizer)
        self._continued = (
            self._plain if vocabulary.continued is None else _plain(vocabulary, vocabulary.continued)
        )
        self._framed = _framed(vocabulary)
        self._added: dict[int, Any] = dict(self._parsing.get_added_tokens_decoder())
        self._control = _pattern(vocabulary.special)
        self._bytes: dict[int, bytes] = {}  # filled as tokens are met

        entries = self._parsing.get_vocab(with_added_tokens=True)
        self.vocab_size: int = 1 + max(entries.values())
        self.bos_token_id: int | None = vocabulary.bos_token_id
        self.eos_token_ids: tuple[int, ...] = vocabulary.eos_token_ids
        self.special_tokens: Mapping[str, int] = vocabulary.special
        self.special_ids: frozenset[int] = frozenset(vocabulary.special.values())
        self.named_tokens: Mapping[str, str] = vocabulary.named  # "bos_token" and the like
        self.chat_template: str | None = vocabulary.chat_template

    @classmethod
    def load(cls, files: ModelFiles, *, chat_template: str | None = None) -> Tokenizer:
        """The tokenizer of a model on the disk: its tokenizer.json, or built from its GGUF metadata.

        A `chat_template` takes the place of the model's own.
        """
        if files.format == "gguf":
            from penstock.text.from_gguf import read_gguf as read
        else:
            from penstock.text.from_folder import read_folder as read
        vocabulary = read(files.path)
        return cls(vocabulary if chat_template is None else replace(vocabulary, chat_template=chat_template))

    def check_vocabulary(self, size: int) -> None:
        """Warn of a model that has fewer tokens. One with more is common: its last rows are padding."""
        if self.vocab_size > size:
            logger.warning(
                "The tokenizer has %d tokens, but the model only the first %d of them; a prompt with any of "
                "the others is refused. Check that the two belong together.",
                self.vocab_size,
                size,
            )

    def encode(self, text: str, *, parse_special: bool = True, add_bos: bool | None = None) -> list[int]:
        """Token ids of a text. `parse_special=False` keeps "<|im_end|>" and its like ordinary text."""
        ids = _ids(self._parsing if parse_special else self._plain, text)
        wanted = self._vocabulary.add_bos if add_bos is None else add_bos
        return [self.bos_token_id, *ids] if wanted and self.bos_token_id is not None else ids

    def encode_pair(self, text: str, pair: str | None = None) -> tuple[list[int], list[int]]:
        """Ids and segment numbers of a text, or two, that an encoder reads as a whole; all of it is text.

        The model's own frame is put around them: [CLS] text [SEP] pair [SEP] and its like.
        """
        if self._framed is not None:
            encoded = _encoded(self._framed, text if pair is None else (text, pair), framed=True)
            return encoded.ids, encoded.type_ids
        ids = self.encode(text, parse_special=False)
        if pair is not None:
            ids += self.encode(pair, parse_special=False, add_bos=False)
        if self._vocabulary.add_eos and self.eos_token_ids:
            ids.append(self.eos_token_ids[0])
        return ids, [0] * len(ids)

    def encode_marked(self, text: str, mark: str) -> list[int]:
        """Token ids of a rendered template: control tokens where whole, all else as text without the mark."""
        ids: list[int] = []
        at = 0
        for match in self._control.finditer(text):
            if match.start() < at:  # inside the white space a token before it took
                continue
            token_id = self.special_tokens[match[0]]
            token, segment = self._added[token_id], text[at : match.start()]
            ids += self._segment(segment.rstrip() if token.lstrip else segment, mark, at > 0)
            ids.append(token_id)
            at = match.end()
            if token.rstrip:
                at = len(text) - len(text[at:].lstrip())
        return ids + self._segment(text[at:], mark, at > 0)

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes one token stands for; none for an id that is only padding of the vocabulary."""
        known = self._bytes.get(token_id)
        if known is None:
            if not 0 <= token_id < self.vocab_size or token_id in self._vocabulary.unused:
                return b""
            known = self._bytes[token_id] = self._spell(token_id)
        return known

    def token_text(self, token_id: int) -> str:
        """One token as text; bytes that are not whole characters show as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of a whole sequence."""
        hidden = self.special_ids if skip_special else _NOTHING
        text = b"".join([self.token_bytes(i) for i in ids if i not in hidden]).decode(
            "utf-8", errors="replace"
        )
        return text.removeprefix(" ") if self._vocabulary.strips_leading_space else text

    def begins_text(self, prompt: Sequence[int]) -> bool:
        """Whether what follows a prompt is a text of its own, whose first word has no space before it.

        Encoding puts one there in some vocabularies, so that models write it there too.
        """
        alone = not prompt or prompt[-1] in self.special_ids
        return alone and self._vocabulary.strips_leading_space

    def _segment(self, text: str, mark: str, continued: bool) -> list[int]:
        text = text.replace(mark, "")
        return _ids(self._continued if continued else self._plain, text) if text else []

    def _spell(self, token_id: int) -> bytes:
        if token_id in self._added:
            text: str = self._added[token_id].content
            return text.encode("utf-8")
        token = self._parsing.id_to_token(token_id)
        if token is None:
            return b""
        if self._vocabulary.spelling == "wordpiece":
            return (token[2:] if token.startswith("##") else f" {token}").encode("utf-8")
        if self._vocabulary.spelling == "byte_level":
            return byte_level.to_bytes(token)
        if match := _BYTE_TOKEN.fullmatch(token):
            return bytes([int(match[1], 16)])
        return token.replace("▁", " ").encode("utf-8")


def _ids(backend: tokenizers.Tokenizer, text: str) -> list[int]:
    ids: list[int] = _encoded(backend, text).ids
    return ids


def _encoded(backend: tokenizers.Tokenizer, text: str | tuple[str, str], framed: bool = False) -> Any:
    try:
        # Unlike `encode`, the batch form lets other Python threads run, and works out no offsets.
        return backend.encode_batch_fast([text], add_special_tokens=framed)[0]
    except TypeError:
        found = [_SURROGATE.search(part) for part in ([text] if isinstance(text, str) else text)]
        lone = next((match for match in found if match is not None), None)
        if lone is None:
            raise
        raise InvalidRequestError(
            f"The text holds a lone surrogate (U+{ord(lone[0]):04X} at character {lone.start()}), "
            "which is no character; remove it."
        ) from None


def _plain(vocabulary: Vocabulary, pre_tokenizer: Any) -> tokenizers.Tokenizer:
    """The same tokenizer, to which control tokens are text. The vocabulary is shared, not copied."""
    from tokenizers import Tokenizer as Backend

    source = vocabulary.backend
    plain = Backend(source.model if vocabulary.plain_model is None else vocabulary.plain_model)
    plain.normalizer = source.normalizer
    plain.pre_tokenizer = pre_tokenizer
    size = plain.get_vocab_size()
    # By rising id: the library numbers those outside the model's own vocabulary as they come.
    for token_id, token in sorted(source.get_added_tokens_decoder().items()):
        if not token.special:
            plain.add_tokens([token])
        elif vocabulary.plain_model is None or token_id >= size:
            plain.add_special_tokens([token])
    plain.encode_special_tokens = True
    return plain


def _framed(vocabulary: Vocabulary) -> tokenizers.Tokenizer | None:
    """The plain tokenizer with the frame the model's post-processor gives, if it gives one."""
    source = vocabulary.backend
    if source.num_special_tokens_to_add(False) == 0:
        return None
    framed = _plain(vocabulary, source.pre_tokenizer)
    framed.post_processor = source.post_processor
    return framed


def _pattern(special: Mapping[str, int]) -> re.Pattern[str]:
    """Finds control tokens, the longest where several begin; one character alone is always text."""
    texts = sorted((text for text in special if len(text) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts)) if texts else r"(?!)")
