"""What the Python API gives back."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.request import FinishReason, TokenLogprobs


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One choice of a prompt."""

    index: int
    text: str
    token_ids: list[int]  # everything generated, the token that ended it included
    logprobs: list[TokenLogprobs]  # of the tokens before the one that ended it; empty unless asked for
    finish_reason: FinishReason | None
    stop_reason: int | str | None  # the stop token or string, of those in SamplingParams, that ended it
    reasoning: str | None = None  # in a chat, what the model thought before `text`; None: nothing
    cumulative_logprob: float | None = None  # of all token_ids; None unless log-probabilities were computed


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A prompt and its choices: `outputs[0].text`."""

    request_id: str
    prompt: str | None  # None if it was given as token ids or messages
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    cached_tokens: int  # prompt tokens that were not computed
    # Of each prompt token, None for the first, of which nothing is known; None unless asked for.
    prompt_logprobs: list[TokenLogprobs | None] | None = None


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """New text of one choice."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    reasoning: str = ""  # comes before `text`
