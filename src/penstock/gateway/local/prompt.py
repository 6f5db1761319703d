"""A prompt on its way through: what the engine gets of it, and what the answer shows of it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.request import TokenEvent, TokenLogprobs
from penstock.gateway.local.scores import Scores
from penstock.protocol.responses import PromptLogprobs
from penstock.protocol.shapes import Position

BYTES_PER_SCORE = 64


@dataclass(frozen=True, slots=True)
class Prompt:
    ids: list[int]
    text: str | None = None  # as `echo` shows it; None: not wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What an answer shows beside its text."""

    logprobs: int | None = None  # of the answer's tokens; None: none, otherwise so many alternatives
    prompt_logprobs: int | None = None
    token_ids: bool = False
    as_ids: bool = False
    reasoning: bool = True


class EchoedPrompt:
    """Waits for the prompt's scores, if any are wanted: nothing of an answer may be shown before them."""

    def __init__(self, prompt: Prompt, shown: Shown, scores: Scores) -> None:
        self._prompt = prompt
        self._shown = shown
        self._scores = scores
        self._held: list[TokenEvent] = []
        self._scored = False
        self.positions: list[Position] | None = None  # the prompt's tokens in front of the answer's
        self.logprobs: PromptLogprobs | None = None
        echoes_scores = prompt.text is not None and shown.logprobs is not None
        self.waits = echoes_scores or shown.prompt_logprobs is not None
        if self.waits and len(prompt.ids) == 1:  # of a single token nothing is known, and nothing comes
            self.score([])
            self.waits = False

    @property
    def ids(self) -> list[int]:
        return self._prompt.ids

    @property
    def text(self) -> str:
        return self._prompt.text or ""

    @property
    def echoes(self) -> bool:
        return self._prompt.text is not None

    @property
    def token_ids(self) -> list[int] | None:
        return self._prompt.ids if self._shown.token_ids else None

    @property
    def scores_size(self) -> int:
        """About how many bytes its scores take in an answer."""
        alternatives = [self._shown.prompt_logprobs, self._shown.logprobs if self.echoes else None]
        return sum(BYTES_PER_SCORE * len(self.ids) * (each + 1) for each in alternatives if each is not None)

    def score(self, found: list[TokenLogprobs]) -> None:
        """Take the scores that have come, and write out what the answer shows of them, for all choices."""
        shown, ids = self._shown, self._prompt.ids
        if self.echoes and shown.logprobs is not None:
            self.positions = self._scores.prompt_positions(ids, found, self.text, shown.logprobs)
        if shown.prompt_logprobs is not None:
            self.logprobs = self._scores.prompt_logprobs(ids, found, shown.prompt_logprobs)
        self._scored = True

    def release(self, event: TokenEvent) -> list[TokenEvent]:
        """The events that may go on, now that this one has come. Not to be asked once nothing `waits`."""
        self._held.append(event)
        if not self._scored and event.finish_reason not in ("error", "cancelled"):
            return []
        self.waits = False
        return self._held
