"""Requests on their way through the engine, each a place where its events are gathered."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from penstock.engine.request import Request, SamplingParams, TokenEvent, TokenLogprobs
from penstock.engine.schedule.sequence import LogitsProcessor
from penstock.errors import InvalidRequestError, PenstockError
from penstock.llm.outputs import CompletionOutput, RequestOutput, StreamChunk
from penstock.text.choice import Choice, best
from penstock.text.reasoning import Reasoning
from penstock.text.tokenizer import Tokenizer


class Gathering(Protocol):
    """One submitted request, and what has come of it."""

    request: Request
    processors: tuple[LogitsProcessor, ...]
    error: PenstockError | None

    @property
    def over(self) -> bool: ...

    @property
    def num_tokens(self) -> int: ...

    def take(self, event: TokenEvent) -> bool:
        """Take the engine's next event; whether the engine must now be told that this choice has ended."""


def check(gathering: Gathering) -> bool:
    """Whether everything has come. Raises what ended it, if that was an error."""
    if gathering.error is not None:
        raise gathering.error
    return gathering.over


class Running:
    """A request for text: its choices so far, and the chunks that its reader has not taken yet.

    `params` is what the user asked for; the request may make more choices and scores than that.
    """

    def __init__(
        self,
        request: Request,
        params: SamplingParams,
        prompt: str | None,
        tokenizer: Tokenizer,
        reasoning: Reasoning | None = None,
        processors: tuple[LogitsProcessor, ...] = (),
    ) -> None:
        self.request = request
        self.processors = processors
        self.chunks: deque[StreamChunk] | None = None  # kept only for a reader
        self.error: PenstockError | None = None
        self._params = params
        self._prompt = prompt
        self._prompt_logprobs: list[TokenLogprobs] = []
        self._cached = 0
        self._choices = [
            Choice(index, tokenizer, request.params, request.prompt, reasoning)
            for index in range(request.params.n)
        ]

    @property
    def over(self) -> bool:
        return self.error is not None or all(choice.finish_reason is not None for choice in self._choices)

    @property
    def num_tokens(self) -> int:
        return sum(len(choice.token_ids) for choice in self._choices)

    def take(self, event: TokenEvent) -> bool:
        if event.finish_reason == "error":
            self.error = _error(event)
            return False
        choice = self._choices[event.index]
        known = len(choice.token_ids)
        self._cached = max(self._cached, event.cached_tokens)
        self._prompt_logprobs = self._prompt_logprobs or event.prompt_logprobs
        added = choice.take(event)
        if self.chunks is not None:
            fresh = choice.token_ids[known:]
            self.chunks.append(
                StreamChunk(event.index, added.text, fresh, choice.finish_reason, added.reasoning)
            )
        return choice.cut

    def output(self) -> RequestOutput:
        scored = self.request.params.logprobs is not None
        outputs = [
            CompletionOutput(
                index,
                choice.text,
                choice.token_ids,
                [] if self._params.logprobs is None else choice.logprobs,
                choice.finish_reason,
                choice.stop_reason,
                choice.reasoning,
                choice.cumulative_logprob if scored else None,
            )
            for index, choice in enumerate(best(self._choices, self._params.n))
        ]
        wanted = self._params.prompt_logprobs is not None
        return RequestOutput(
            self.request.id,
            self._prompt,
            self.request.prompt,
            outputs,
            self._cached,
            [None, *self._prompt_logprobs] if wanted else None,
        )


class OneToken:
    """A request for the scores of one token, as beam search makes them."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.processors: tuple[LogitsProcessor, ...] = ()
        self.error: PenstockError | None = None
        self.event: TokenEvent | None = None

    @property
    def over(self) -> bool:
        return self.error is not None or self.event is not None

    @property
    def num_tokens(self) -> int:
        return 1

    def take(self, event: TokenEvent) -> bool:
        if event.finish_reason == "error":
            self.error = _error(event)
        else:
            self.event = event
        return False


def _error(event: TokenEvent) -> PenstockError:
    kind = InvalidRequestError if event.invalid else PenstockError
    return kind(event.error or "The engine failed while computing this request.")
