"""What the two faces of one generation have in common; each has its own file.

A generation is a series of `Delta`s, whatever endpoint asked for it. A shape turns them
into stream events, and the finished choices into the whole answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from msgspec import UNSET, UnsetType

from penstock.protocol.responses import (
    ChatCompletion,
    Completion,
    CompletionTokensDetails,
    FinishReason,
    PromptLogprobs,
    PromptTokensDetails,
    StopReason,
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
    cost: float | None = None  # US dollars, once all is known; None: no price, or not yet
    latency_ms: float | None = None  # from arrival to the end

    def message(self) -> Usage:
        return Usage(
            self.prompt,
            self.completion,
            self.prompt + self.completion,
            PromptTokensDetails(self.cached),
            UNSET if self.reasoning is None else CompletionTokensDetails(self.reasoning),
            given(self.cost),
            given(self.latency_ms),
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


def finite(logprob: float | None) -> float:
    return LOWEST_LOGPROB if logprob is None or not logprob > LOWEST_LOGPROB else logprob


def given(value: T | None) -> T | UnsetType:
    """What was not asked for is left out."""
    return UNSET if value is None else value
