"""The light text model: a vector for every piece of a word, and a text is their weighted mean.

The vectors were distilled from MiniLM (what it makes of each piece alone), so words that mean alike lie close
together, also those that no training question had. Knows no context; takes a fraction of a millisecond.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.aio.array_file import DAMAGED, arrays_of, read_content
from penstock.errors import ConfigError

SHIPPED: Final = Path(__file__).with_name("shipped") / "words.npz"
MAX_CHARACTERS: Final = 4000  # of a text; what is asked is no longer
MAX_WORDS: Final = 50_000  # that are remembered
_WORDS: Final = re.compile(r"[^\W_]{1,100}|[^\w\s]|_")


class WordVectors:
    """`vectors` are whole numbers, to be multiplied by `scale`; `weights` say how much a piece counts."""

    def __init__(
        self,
        pieces: Sequence[str],
        vectors: NDArray[np.int8],
        scale: NDArray[np.float32],
        weights: NDArray[np.float32],
    ) -> None:
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        self._vectors, self._scale, self._weights = vectors, scale, weights
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        self._tokenizer: Any = Tokenizer(models.WordPiece(vocabulary, unk_token=pieces[0]))
        self._tokenizer.normalizer = normalizers.BertNormalizer()
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._known: dict[str, list[int]] = {}  # pieces of words that have been met

    @property
    def width(self) -> int:
        return len(self._scale)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A vector of length 1 for each text, [n, width]; of a text without words it is 0."""
        found = np.zeros((len(texts), self.width), np.float32)
        for row, text in enumerate(texts):
            ids = self._pieces(text[:MAX_CHARACTERS])
            if ids:
                found[row] = self._weights[ids] @ self._vectors[ids]
        found *= self._scale
        found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), np.float32(1e-12))
        return found

    def _pieces(self, text: str) -> list[int]:
        """Word by word, since most words come again and again: that is ten times as quick."""
        ids: list[int] = []
        for word in _WORDS.findall(text.lower()):
            known = self._known.get(word)
            if known is None:
                # A lone surrogate, which JSON can spell, is no text to the tokenizer.
                known = self._tokenizer.encode(word.encode("utf-8", "replace").decode()).ids
                if len(self._known) < MAX_WORDS:
                    self._known[word] = known
            ids += known
        return ids


@functools.cache
def load_words(path: Path = SHIPPED) -> WordVectors:
    """The vectors that are shipped."""
    try:
        found = arrays_of(read_content(path))
        pieces = found["pieces"].tobytes().decode().split("\n")
        return WordVectors(pieces, found["vectors"], found["scale"], found["weights"])
    except OSError as error:
        raise ConfigError(f"The word vectors {path} cannot be read: {error.strerror or error}.") from error
    except DAMAGED as error:
        raise ConfigError(f"{path} does not hold word vectors: {error}.") from error
