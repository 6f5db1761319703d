"""Texts that a model reads as a whole, to make a vector or a score of them: framed, cut, measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from penstock.errors import ContextLengthError, InvalidRequestError
from penstock.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Read:
    """One text, or two as a pair, ready for the engine."""

    ids: list[int]
    segments: list[int]  # empty: all of the first kind


class Reader:
    """Puts a model's own frame around texts and holds them to its context.

    `keep` is how many tokens to cut a text to, -1 for as many as the model reads; None refuses a text that
    is too long. What is cut off is the end of the text, never the frame.
    """

    def __init__(self, tokenizer: Tokenizer, context: int) -> None:
        self._tokenizer = tokenizer
        self._context = context

    def text(self, text: str, where: str, *, framed: bool = True, keep: int | None = None) -> Read:
        if not text:
            raise InvalidRequestError(f"{where} is empty; there must be something to read.", param=where)
        if not framed:
            ids = self._tokenizer.encode(text, parse_special=False, add_bos=False)
            return self.token_ids(ids, where, keep=keep)
        ids, segments = self._tokenizer.encode_pair(text)
        return self._fitted(ids, segments, where, keep, lambda: len(self._frame))

    def pair(self, first: str, second: str, where: tuple[str, str], *, keep: int | None = None) -> Read:
        """Two texts at once, as a cross-encoder reads them. If they are too long, the second is cut."""
        for text, name in zip((first, second), where, strict=True):
            if not text:
                raise InvalidRequestError(f"{name} is empty; there must be something to read.", param=name)
        ids, segments = self._tokenizer.encode_pair(first, second)
        return self._fitted(
            ids, segments, where[1], keep, lambda: len(self._tokenizer.encode_pair(first, "")[0])
        )

    def token_ids(self, ids: Sequence[int], where: str, *, keep: int | None = None) -> Read:
        """Ids as they were given: whoever sends ids has framed them, or does not want a frame."""
        if not ids:
            raise InvalidRequestError(f"{where} has no tokens; there must be something to read.", param=where)
        limit = self._limit(keep)
        cut = list(ids[:limit]) if keep is not None else list(ids)
        self._check_length(len(cut), where)
        return Read(cut, [])

    @cached_property
    def _frame(self) -> list[int]:
        """What stands around a text."""
        return self._tokenizer.encode_pair("")[0]

    def _fitted(
        self,
        ids: list[int],
        segments: list[int],
        where: str,
        keep: int | None,
        beside: Callable[[], int],
    ) -> Read:
        """`beside` counts the tokens that must stay whatever is cut off; only a cut needs to know."""
        if not ids:
            raise InvalidRequestError(f"{where} has no tokens; there must be something to read.", param=where)
        if keep is not None and len(ids) > (limit := self._limit(keep)):
            if limit < (least := beside() + 1):
                raise InvalidRequestError(
                    f"truncate_prompt_tokens leaves {limit} tokens, but {where} with what must stand around "
                    f"it needs at least {least}.",
                    param="truncate_prompt_tokens",
                )
            behind = self._behind(ids)
            ids, segments = _cut(ids, limit, behind), _cut(segments, limit, behind)
        self._check_length(len(ids), where)
        return Read(ids, segments if any(segments) else [])

    def _behind(self, ids: list[int]) -> int:
        """How many tokens of the frame stand behind a text. It ends in none itself: all of it is text."""
        pairs = zip(reversed(self._frame), reversed(ids), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def _limit(self, keep: int | None) -> int:
        return self._context if keep is None or keep == -1 else min(keep, self._context)

    def _check_length(self, count: int, where: str) -> None:
        if count > self._context:
            raise ContextLengthError(
                f"{where} has {count} tokens, but the model reads at most {self._context}. Shorten it, or "
                "let truncate_prompt_tokens cut it.",
                param=where,
            )


def _cut(values: list[int], limit: int, behind: int) -> list[int]:
    return values[: limit - behind] + values[len(values) - behind :]
