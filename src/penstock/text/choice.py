"""One choice of an answer, from the engine's events to text: what to show, and when it is over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeVar

from penstock.engine.request import FinishReason, SamplingParams, TokenEvent, TokenLogprobs
from penstock.text.reasoning import Parts, Reasoning, Splitter
from penstock.text.stream import TextStream
from penstock.text.tokenizer import Tokenizer

NOTHING = Parts("", "")


class Scored(Protocol):
    @property
    def mean_logprob(self) -> float: ...


S = TypeVar("S", bound=Scored)


def best(choices: Sequence[S], n: int) -> Sequence[S]:
    """The n of the highest mean log-probability, the best first; all of them as they are if there are n."""
    return choices if n >= len(choices) else sorted(choices, key=lambda choice: -choice.mean_logprob)[:n]


class Choice:
    """Fed the engine's events until `finish_reason` is set.

    The engine ends a choice on token ids and lengths; stop strings are found here, and then the
    engine must be told to stop (`cut` is True).
    """

    def __init__(
        self,
        index: int,
        tokenizer: Tokenizer,
        params: SamplingParams,
        prompt: Sequence[int],
        reasoning: Reasoning | None = None,
    ) -> None:
        self.index = index
        self.token_ids: list[int] = []  # everything generated, the token that ended it included
        self.logprobs: list[TokenLogprobs] = []  # of the tokens that are shown
        self.shown_ids: list[int] = []
        self.reasoning_tokens = 0  # so many of the first shown ones are reasoning, its marks included
        self.cumulative_logprob = 0.0  # of everything generated, if log-probabilities were asked for
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None  # the client's own stop token or string that ended it
        self._params = params
        self._splitter = None if reasoning is None else Splitter(reasoning)
        self._stream = TextStream(
            tokenizer, params, keep=_marks(tokenizer, reasoning), begins=tokenizer.begins_text(prompt)
        )
        self._thought: list[str] = []
        self._answer: list[str] = []

    def __repr__(self) -> str:
        return f"Choice(index={self.index}, text={self.text!r}, finish_reason={self.finish_reason!r})"

    @property
    def text(self) -> str:
        """The answer so far, without the reasoning before it."""
        return self._stream.text if self._splitter is None else "".join(self._answer)

    @property
    def reasoning(self) -> str | None:
        """None if there was none."""
        if self._splitter is None or not self._splitter.reasoned:
            return None
        return "".join(self._thought)

    @property
    def answering(self) -> bool:
        """Whether the reasoning, if any, is over."""
        return self._splitter is None or self._splitter.answering

    @property
    def cut(self) -> bool:
        """Whether a stop string ended it, which the engine cannot know."""
        return self._stream.stopped is not None

    @property
    def mean_logprob(self) -> float:
        """By which choices are compared; that of no tokens is the lowest."""
        return self.cumulative_logprob / len(self.token_ids) if self.token_ids else -math.inf

    def take(self, event: TokenEvent) -> Parts:
        """The text that this event adds. Tokens after the end are ignored."""
        if self.finish_reason is not None:
            return NOTHING
        thought = text = ""
        for number, token in enumerate(event.token_ids):
            self.token_ids.append(token)
            if event.logprobs:
                self.cumulative_logprob += event.logprobs[number].chosen
            last = number == len(event.token_ids) - 1
            if last and token == event.stop_token and not self._shows(token):
                break
            self.shown_ids.append(token)
            if event.logprobs:
                self.logprobs.append(event.logprobs[number])
            new = self._stream.push(token)
            if self._splitter is None:
                text += new
            else:
                part = self._part(self._splitter, new)
                thought, text = thought + part.reasoning, text + part.text
            if self._stream.stopped is not None:
                self.finish_reason, self.stop_reason = "stop", self._stream.stopped
                break
        if self.finish_reason is None and event.finish_reason is not None:
            new = self._stream.finish()
            if self._splitter is None:
                text += new
            else:
                part = self._part(self._splitter, new)
                thought, text = thought + part.reasoning, text + part.text
            self.finish_reason = event.finish_reason
            if event.stop_token in self._params.stop_token_ids:
                self.stop_reason = event.stop_token
        if self.finish_reason is not None and self._splitter is not None:
            part = self._kept(self._splitter.finish())
            thought, text = thought + part.reasoning, text + part.text
        return Parts(thought, text)

    def _part(self, splitter: Splitter, text: str) -> Parts:
        undecided = not splitter.answering
        part = splitter.push(text)
        if undecided and splitter.reasoned:
            self.reasoning_tokens = len(self.shown_ids)
        return self._kept(part)

    def _kept(self, part: Parts) -> Parts:
        self._thought.append(part.reasoning)
        self._answer.append(part.text)
        return part

    def _shows(self, token: int) -> bool:
        """A stop token of the client's own choosing is shown if stops are to be included."""
        return self._params.include_stop_str_in_output and token in self._params.stop_token_ids


def _marks(tokenizer: Tokenizer, reasoning: Reasoning | None) -> frozenset[int]:
    """Control tokens that mark reasoning: they are not for the reader, but must be seen here."""
    if reasoning is None:
        return frozenset()
    marks = (*reasoning.family.begins, *reasoning.family.ends)
    return frozenset(tokenizer.special_tokens[mark] for mark in marks if mark in tokenizer.special_tokens)
