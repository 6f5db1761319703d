"""The two faces of one generation: chat completions and text completions.

A generation is a series of `Delta`s, whatever endpoint asked for it. A shape turns them
into stream events, and the finished choices into the whole answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from msgspec import UNSET, UnsetType

from penstock.protocol import sse
from penstock.protocol.responses import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    ChatTokenLogprob,
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    CompletionTokensDetails,
    FinishReason,
    PromptLogprobs,
    PromptTokensDetails,
    StopReason,
    TopLogprob,
    Usage,
)

T = TypeVar("T")

# JSON has no infinity: a probability of zero is shown as this logarithm, as vLLM does.
LOWEST_LOGPROB = -9999.0


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """One token with its natural-log probability."""

    text: str
    raw: bytes
    logprob: float | None  # None: nothing is known, of a prompt's first token


@dataclass(frozen=True, slots=True)
class Position:
    """One token and the likeliest alternatives at its place."""

    chosen: ScoredToken
    top: Sequence[ScoredToken]
    offset: int  # characters of the choice's text before it


@dataclass(slots=True)
class Delta:
    """What one choice has gained since its last delta; the one with `finish_reason` is its last."""

    index: int
    text: str
    positions: list[Position] | None = None  # None: no logprobs were asked for
    finish_reason: FinishReason | None = None
    stop_reason: StopReason | None = None
    reasoning: str = ""  # comes before the text
    token_ids: list[int] | None = None  # None: not asked for
    prompt_token_ids: list[int] | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """One finished choice."""

    index: int
    text: str
    positions: list[Position] | None
    finish_reason: FinishReason
    stop_reason: StopReason | None
    reasoning: str | None = None  # None: there was none, or it is not wanted
    token_ids: list[int] | None = None  # None: not asked for
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


@dataclass(slots=True)
class UsageCount:
    """Tokens so far, over all prompts and choices of one HTTP request."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int | None = None  # of the completion; None: the model does not reason

    def message(self) -> Usage:
        return Usage(
            self.prompt,
            self.completion,
            self.prompt + self.completion,
            PromptTokensDetails(self.cached),
            UNSET if self.reasoning is None else CompletionTokensDetails(self.reasoning),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What every message of one answer repeats."""

    id: str
    created: int  # Unix time
    model: str
    system_fingerprint: str
    include_usage: bool = False  # a last chunk with the usage, null in the others
    running_usage: bool = False  # the usage so far in every chunk
    usage: UsageCount = field(default_factory=UsageCount)

    def chunk_usage(self) -> Usage | UnsetType | None:
        if self.running_usage:
            return self.usage.message()
        return None if self.include_usage else UNSET


class Shape(Protocol):
    """How one endpoint speaks."""

    header: Header

    def opening(self, choices: int, prompt: list[int] | None = None) -> bytes:
        """Events before the first token; `prompt` is the first one's ids, if they are wanted."""

    def delta(self, delta: Delta) -> bytes:
        """The events for one delta."""

    def closing(self) -> bytes:
        """Events after every choice has ended: the usage if asked for, and the end mark."""

    def whole(self, answers: Sequence[Answered]) -> ChatCompletion | Completion:
        """The answer of a request that did not stream."""


class ChatShape:
    def __init__(self, header: Header) -> None:
        self.header = header

    def opening(self, choices: int, prompt: list[int] | None = None) -> bytes:
        return b"".join(
            self._event(
                [ChatChunkChoice(index, ChatDelta(role="assistant", content=""))],
                prompt=prompt if index == 0 else None,
            )
            for index in range(choices)
        )

    def delta(self, delta: Delta) -> bytes:
        events = b""
        logprobs, ids = _chat_logprobs(delta.positions), _given(delta.token_ids)
        if delta.reasoning:
            thought = ChatDelta(reasoning_content=delta.reasoning, reasoning=delta.reasoning)
            if delta.text:  # one token ended the one and began the other: it counts as the latter's
                events = self._event([ChatChunkChoice(delta.index, thought)])
            else:
                events = self._event([ChatChunkChoice(delta.index, thought, logprobs, token_ids=ids)])
                ids = UNSET
        if delta.text or (delta.positions and not delta.reasoning):
            content = ChatDelta(content=delta.text)
            events += self._event([ChatChunkChoice(delta.index, content, logprobs, token_ids=ids)])
            ids = UNSET
        if delta.finish_reason is not None:
            last = ChatChunkChoice(
                delta.index,
                ChatDelta(),
                finish_reason=delta.finish_reason,
                stop_reason=delta.stop_reason,
                token_ids=ids,
            )
            events += self._event([last])
        elif ids and not events:  # tokens that are not text yet
            events = self._event([ChatChunkChoice(delta.index, ChatDelta(content=""), token_ids=ids)])
        return events

    def closing(self) -> bytes:
        usage = self._event([], self.header.usage.message()) if self.header.include_usage else b""
        return usage + sse.DONE

    def whole(self, answers: Sequence[Answered]) -> ChatCompletion:
        header = self.header
        choices = [
            ChatChoice(
                answer.index,
                ChatMessage(
                    content=answer.text,
                    reasoning_content=_given(answer.reasoning),
                    reasoning=_given(answer.reasoning),
                ),
                answer.finish_reason,
                _chat_logprobs(answer.positions),
                answer.stop_reason,
                _given(answer.token_ids),
            )
            for answer in answers
        ]
        return ChatCompletion(
            id=header.id,
            created=header.created,
            model=header.model,
            choices=choices,
            usage=header.usage.message(),
            system_fingerprint=header.system_fingerprint,
            prompt_logprobs=_given(answers[0].prompt_logprobs),
            prompt_token_ids=_given(answers[0].prompt_token_ids),
        )

    def _event(
        self,
        choices: list[ChatChunkChoice],
        usage: Usage | None = None,
        prompt: list[int] | None = None,
    ) -> bytes:
        header = self.header
        chunk = ChatChunk(
            id=header.id,
            created=header.created,
            model=header.model,
            choices=choices,
            system_fingerprint=header.system_fingerprint,
            usage=usage or header.chunk_usage(),
            prompt_token_ids=_given(prompt),
        )
        return sse.event(chunk)


class CompletionShape:
    def __init__(self, header: Header) -> None:
        self.header = header

    def opening(self, choices: int, prompt: list[int] | None = None) -> bytes:
        return b""

    def delta(self, delta: Delta) -> bytes:
        ids = delta.token_ids or delta.prompt_token_ids
        if not (delta.text or delta.positions or delta.finish_reason or ids):
            return b""
        choice = CompletionChoice(
            delta.index,
            delta.text,
            _completion_logprobs(delta.positions),
            delta.finish_reason,
            delta.stop_reason,
            token_ids=_given(delta.token_ids),
            prompt_token_ids=_given(delta.prompt_token_ids),
        )
        return sse.event(self._message([choice], self.header.chunk_usage()))

    def closing(self) -> bytes:
        header = self.header
        usage = sse.event(self._message([], header.usage.message())) if header.include_usage else b""
        return usage + sse.DONE

    def whole(self, answers: Sequence[Answered]) -> Completion:
        choices = [
            CompletionChoice(
                answer.index,
                answer.text,
                _completion_logprobs(answer.positions),
                answer.finish_reason,
                answer.stop_reason,
                _given(answer.token_ids),
                _given(answer.prompt_logprobs),
                _given(answer.prompt_token_ids),
            )
            for answer in answers
        ]
        return self._message(choices, self.header.usage.message())

    def _message(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> Completion:
        header = self.header
        return Completion(
            id=header.id,
            created=header.created,
            model=header.model,
            choices=choices,
            system_fingerprint=header.system_fingerprint,
            usage=usage,
        )


def _chat_logprobs(positions: list[Position] | None) -> ChatLogprobs | None:
    if positions is None:
        return None
    return ChatLogprobs(
        [
            ChatTokenLogprob(
                position.chosen.text,
                finite(position.chosen.logprob),
                list(position.chosen.raw),
                [TopLogprob(token.text, finite(token.logprob), list(token.raw)) for token in position.top],
            )
            for position in positions
        ]
    )


def _completion_logprobs(positions: list[Position] | None) -> CompletionLogprobs | None:
    if positions is None:
        return None
    return CompletionLogprobs(
        tokens=[position.chosen.text for position in positions],
        token_logprobs=[
            None if position.chosen.logprob is None else finite(position.chosen.logprob)
            for position in positions
        ],
        # The chosen token is always among them, even when it was not one of the likeliest.
        top_logprobs=[
            None
            if position.chosen.logprob is None
            else {token.text: finite(token.logprob) for token in (*position.top, position.chosen)}
            for position in positions
        ],
        text_offset=[position.offset for position in positions],
    )


def finite(logprob: float | None) -> float:
    return LOWEST_LOGPROB if logprob is None or not logprob > LOWEST_LOGPROB else logprob


def _given(value: T | None) -> T | UnsetType:
    """What was not asked for is left out."""
    return UNSET if value is None else value
