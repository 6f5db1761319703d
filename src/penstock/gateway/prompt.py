"""A prompt on its way through: what the engine gets of it, and what the answer shows of it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.request import TokenEvent, TokenLogprobs
from penstock.gateway.scores import Scores
from penstock.protocol.responses import PromptLogprobs
from penstock.protocol.shapes import Position


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
        self._found: list[TokenLogprobs] = []
        echoes_scores = prompt.text is not None and shown.logprobs is not None
        # Of a single token nothing is known, and nothing comes.
        self._waits = (echoes_scores or shown.prompt_logprobs is not None) and len(prompt.ids) > 1
        self._held: list[TokenEvent] = []
        self._positions: list[Position] | None = None

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

    def release(self, event: TokenEvent) -> list[TokenEvent]:
        """The events that may go on, now that this one has come."""
        if event.prompt_logprobs:
            self._found, self._waits = event.prompt_logprobs, False
        if self._waits and event.finish_reason not in ("error", "cancelled"):
            self._held.append(event)
            return []
        released, self._held = [*self._held, event], []
        return released

    def positions(self) -> list[Position] | None:
        """The prompt's tokens in front of the answer's; the same for all choices."""
        if self.echoes and self._shown.logprobs is not None and self._positions is None:
            self._positions = self._scores.prompt_positions(
                self._prompt.ids, self._found, self.text, self._shown.logprobs
            )
        return self._positions

    def logprobs(self) -> PromptLogprobs | None:
        if self._shown.prompt_logprobs is None:
            return None
        return self._scores.prompt_logprobs(self._prompt.ids, self._found, self._shown.prompt_logprobs)
