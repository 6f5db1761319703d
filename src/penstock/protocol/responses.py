"""What clients get back: whole answers, stream chunks, usage and the list of models."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from penstock.engine.config import Task

FinishReason = Literal["stop", "length"]
StopReason = int | str  # vLLM's extra: the stop token id or the stop string


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    reasoning_tokens: int


class Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET  # of models that reason
    cost: float | UnsetType = UNSET  # US dollars, of models with a price
    latency_ms: float | UnsetType = UNSET  # from arrival to the end


class PromptLogprob(msgspec.Struct):
    """One token at one place of the prompt, by its id as text."""

    logprob: float
    rank: int  # 1 for the likeliest
    decoded_token: str


# For each token of the prompt what it and its likeliest alternatives had; nothing is known of the first.
PromptLogprobs = list[dict[str, PromptLogprob] | None]


class TopLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[ChatTokenLogprob]
    refusal: None = None


class ChatMessage(msgspec.Struct, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET  # what the model thought before it answered
    reasoning: str | UnsetType = UNSET  # the same, under the name that newer clients read


class ChatChoice(msgspec.Struct):
    index: int
    message: ChatMessage
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None = None
    stop_reason: StopReason | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class ChatDelta(msgspec.Struct):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_reason: StopReason | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(msgspec.Struct, kw_only=True):
    """One event of a stream. `usage` is there (null until the end) only if it was asked for."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    system_fingerprint: str
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET  # in the first event, if asked for


class CompletionLogprobs(msgspec.Struct):
    """With `echo` the prompt's tokens come first; nothing is known of the very first one."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_reason: StopReason | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class Completion(msgspec.Struct, kw_only=True):
    """A whole text completion, or one event of a stream (then `usage` only if it was asked for)."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    system_fingerprint: str
    usage: Usage | UnsetType | None = UNSET


class Model(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "penstock"
    root: str
    parent: None = None
    max_model_len: int | None = None  # None: only the server behind it knows
    tasks: list[Task] | None = None  # what the model can be asked for


class ModelList(msgspec.Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Model]


class Version(msgspec.Struct):
    version: str


class Status(msgspec.Struct, omit_defaults=True):
    """Health and readiness; `reason` says why not."""

    status: str
    reason: str | None = None
