"""Vectors and scores from the Python API: the same reading, engine and arithmetic as the server's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from penstock.engine.config import EngineInfo, Task
from penstock.engine.request import Request
from penstock.engine.vectors import Vector, check_dimensions, finished, similarity, vector
from penstock.errors import InvalidRequestError
from penstock.llm.running import OneToken
from penstock.text.reading import Read, Reader
from penstock.text.tokenizer import Tokenizer

Text = str | Sequence[int]


class Embedder:
    """Turns texts into vectors with whatever runs requests to their ends."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        info: EngineInfo,
        serial: Iterator[int],
        run: Callable[[Sequence[OneToken]], None],
    ) -> None:
        self._reader = Reader(tokenizer, info.max_model_len)
        self._info = info
        self._serial = serial
        self._run = run

    def embed(
        self, texts: Sequence[Text], dimensions: int | None, normalize: bool, keep: int | None
    ) -> npt.NDArray[np.float32]:
        self._check("embed")
        size = self._info.embedding_size
        check_dimensions(dimensions, size)
        reads = [self._read(text, f"texts[{number}]", keep) for number, text in enumerate(texts)]
        vectors = [
            finished(found, dimensions=dimensions, normalize=normalize) for found in self._vectors(reads)
        ]
        return np.stack(vectors) if vectors else np.empty((0, dimensions or size), dtype=np.float32)

    def score(self, query: str, documents: Sequence[str], keep: int | None) -> list[float]:
        self._check("score")
        names = [f"documents[{number}]" for number in range(len(documents))]
        if self._info.pooling == "score":
            pairs = [
                self._reader.pair(query, text, ("query", name), keep=keep)
                for text, name in zip(documents, names, strict=True)
            ]
            return [float(found[0]) for found in self._vectors(pairs)]
        reads = [
            self._read(text, name, keep)
            for text, name in zip((query, *documents), ("query", *names), strict=True)
        ]
        asked, *others = self._vectors(reads)
        return [similarity(asked, other) for other in others]

    def _read(self, text: Text, where: str, keep: int | None) -> Read:
        if isinstance(text, str):
            return self._reader.text(text, where, keep=keep)
        return self._reader.token_ids(text, where, keep=keep)

    def _vectors(self, reads: Sequence[Read]) -> list[Vector]:
        asked = [
            OneToken(
                Request(
                    id=f"llm-{next(self._serial)}",
                    prompt=read.ids,
                    segments=read.segments,
                    pooling=self._info.pooling,
                )
            )
            for read in reads
        ]
        self._run(asked)
        return [vector(each.event.embedding) for each in asked if each.event is not None]

    def _check(self, task: Task) -> None:
        if task in self._info.tasks:
            return
        if "generate" in self._info.tasks:
            raise InvalidRequestError(
                "This is a chat model; open it with LLM(..., pooling='mean') or 'last' for vectors."
            )
        raise InvalidRequestError("This is a cross-encoder: it scores pairs of texts and gives no vectors.")
