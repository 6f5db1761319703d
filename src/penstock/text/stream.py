"""Token ids of one choice in, text out, piece by piece.

Two things hold text back: bytes that do not yet make a character, and characters that may be the
beginning of a stop string. Everything else goes out at once, so a client sees each token as it comes.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from penstock.text.stops import StopStrings, compiled

if TYPE_CHECKING:
    from penstock.engine.request import SamplingParams
    from penstock.text.tokenizer import Tokenizer

_decoder = codecs.getincrementaldecoder("utf-8")


class TextStream:
    """Incremental detokenizer with stop strings.

    The pieces returned by `push` and `finish` together are the decoded text, cut where the first
    stop string to be completed begins (or ends, if it is to be included). Where that is does not
    depend on how the text falls into tokens. Text of the tokens before `min_tokens` is never cut.
    """

    __slots__ = (
        "_begins", "_bytes", "_count", "_decode", "_first", "_held", "_hidden", "_keep_stop", "_parts",
        "_state", "_stops", "stopped",
    )  # fmt: skip

    def __init__(
        self,
        tokenizer: Tokenizer,
        params: SamplingParams,
        keep: frozenset[int] = frozenset(),
        *,
        begins: bool = False,
    ) -> None:
        """`keep`: special tokens whose text is wanted even if the others are skipped.

        `begins`: a text of its own, of which a space before the first word is no part.
        """
        self.stopped: str | None = None
        self._begins = begins
        self._bytes = tokenizer.token_bytes
        special = tokenizer.special_ids - keep if keep else tokenizer.special_ids
        self._hidden = special if params.skip_special_tokens else frozenset()
        self._decode = _decoder(errors="replace").decode
        self._stops: StopStrings | None = compiled(params.stop) if params.stop else None
        self._keep_stop = params.include_stop_str_in_output
        self._first = params.min_tokens  # number of the first token in whose text stops are looked for
        self._count = 0  # tokens pushed
        self._state = 0  # of the stop automaton
        self._held = ""  # may be the beginning of a stop string
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """Everything emitted so far."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def push(self, token_id: int) -> str:
        """Take one token; return the text that may be sent now, often all of it, sometimes none."""
        self._count += 1
        if token_id in self._hidden:
            return ""
        return self._take(self._decode(self._bytes(token_id)))

    def finish(self) -> str:
        """Return what was held back. Call once, after the last token, unless a stop string matched."""
        text = self._take(self._decode(b"", True))
        if self.stopped is None and self._held:
            self._parts.append(self._held)
            text, self._held = text + self._held, ""
        return text

    def _take(self, text: str) -> str:
        if not text:
            return ""
        if self._begins:
            self._begins = False
            text = text.removeprefix(" ")
        if self._stops is not None and self._count >= self._first:
            text = self._scan(text)
        if text:
            self._parts.append(text)
        return text

    def _scan(self, new: str) -> str:
        """Advance the automaton over the new characters; return those that no stop string can claim."""
        assert self._stops is not None
        text = self._held + new
        self._state, used, match = self._stops.advance(self._state, new)
        if match is None:
            safe = len(text) - self._stops.depth[self._state]
            self._held = text[safe:]
            return text[:safe]
        self.stopped = match
        self._held = ""
        end = len(text) - len(new) + used
        return text[: end if self._keep_stop else end - len(match)]
