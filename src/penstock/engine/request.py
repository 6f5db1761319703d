"""What goes into the engine and what comes out: plain data, no torch."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.errors import InvalidRequestError

MAX_CHOICES = 128
MAX_LOGPROBS = 256  # more than the API offers: beam search compares as many as it has beams and ends
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
MAX_STOP_TOKENS = 1024
MAX_PRIORITY = 1000
MAX_COUNT = 2**31 - 1  # of anything counted in tokens, and of token ids
MAX_BAD_WORDS = 1024
MAX_GUIDED_CHOICES = 1024
MAX_TEXT_CHARACTERS = 4096  # of a bad word or a guided choice

# How the hidden states of a prompt become one vector; "score" is what a classifier head gives.
Pooling = Literal["last", "mean", "cls", "score"]
FinishReason = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose tokens. Defaults sample from the model's own distribution."""

    n: int = 1
    best_of: int | None = None  # make so many choices, keep the n of the best mean log-probability
    max_tokens: int | None = None  # None: until the model stops or the context is full; 0: no output
    min_tokens: int = 0
    temperature: float = 1.0  # 0: greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 or -1: off
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] = ()  # nothing else is generated; empty: anything
    bad_words: tuple[str, ...] = ()  # never generated, neither at the beginning of a word nor inside
    guided_choice: tuple[str, ...] = ()  # the answer is exactly one of these
    seed: int | None = None  # None: drawn by the engine
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # None: none; 0: the chosen token's; k: and the k likeliest
    prompt_logprobs: int | None = None  # the same of the prompt's tokens, which are all computed for it
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _as_texts(self.stop))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        object.__setattr__(self, "logit_bias", self.logit_bias or {})
        object.__setattr__(self, "allowed_token_ids", tuple(self.allowed_token_ids or ()))
        object.__setattr__(self, "bad_words", _as_texts(self.bad_words))
        object.__setattr__(self, "guided_choice", _as_texts(self.guided_choice))
        self._check()

    def _check(self) -> None:
        _integer("n", self.n, 1, MAX_CHOICES)
        if self.best_of is not None:
            _integer("best_of", self.best_of, self.n, MAX_CHOICES)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 0, MAX_COUNT)
        _integer("min_tokens", self.min_tokens, 0, MAX_COUNT)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens}).",
                param="min_tokens",
            )
        _number("temperature", self.temperature, 0.0, 2.0)
        _number("top_p", self.top_p, 0.0, 1.0, low_open=True)
        _integer("top_k", self.top_k, -1, MAX_COUNT)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("repetition_penalty", self.repetition_penalty, 0.0, sys.float_info.max, low_open=True)
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        for token, bias in self.logit_bias.items():
            _integer("logit_bias", token, 0, MAX_COUNT)
            _number("logit_bias", bias, -100.0, 100.0)
        if self.seed is not None:
            _integer("seed", self.seed, -(2**63), 2**64 - 1)
        if len(self.stop) > MAX_STOPS:
            raise InvalidRequestError(
                f"stop takes at most {MAX_STOPS} strings, got {len(self.stop)}.", param="stop"
            )
        for text in self.stop:
            if not isinstance(text, str) or not 1 <= len(text) <= MAX_STOP_CHARACTERS:
                raise InvalidRequestError(
                    f"Each stop string must have 1 to {MAX_STOP_CHARACTERS} characters.", param="stop"
                )
        if len(self.stop_token_ids) > MAX_STOP_TOKENS:
            raise InvalidRequestError(
                f"stop_token_ids takes at most {MAX_STOP_TOKENS} ids, got {len(self.stop_token_ids)}.",
                param="stop_token_ids",
            )
        for name in ("stop_token_ids", "allowed_token_ids"):
            for token in getattr(self, name):
                _integer(name, token, 0, MAX_COUNT)
        _texts("bad_words", self.bad_words, MAX_BAD_WORDS)
        _texts("guided_choice", self.guided_choice, MAX_GUIDED_CHOICES)
        if self.guided_choice and (self.min_tokens or self.allowed_token_ids):
            other = "min_tokens" if self.min_tokens else "allowed_token_ids"
            raise InvalidRequestError(
                f"{other} cannot be combined with guided_choice, which says exactly what may be generated.",
                param=other,
            )
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                _integer(name, getattr(self, name), 0, MAX_LOGPROBS)

    def for_engine(self) -> SamplingParams:
        """What the engine is asked for: with best_of more choices, with the scores they are compared by."""
        if self.best_of is None or self.best_of == self.n:
            return self
        return replace(self, n=self.best_of, best_of=None, logprobs=self.logprobs or 0)

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse token ids the model does not have."""
        for name in ("logit_bias", "stop_token_ids", "allowed_token_ids"):
            for token in getattr(self, name):
                if token >= vocab_size:
                    raise InvalidRequestError(
                        f"{name} names token id {token}, but the vocabulary has {vocab_size} tokens.",
                        param=name,
                    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt for the engine: `n` choices share it, or with `pooling` it becomes one vector.

    What `params` gives as text (stop strings, bad words, guided choices) means nothing to the engine;
    bad words and guided choices come to it as token ids.
    """

    id: str
    prompt: list[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    eos_token_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()  # token sequences that must not be completed
    guided: tuple[tuple[int, ...], ...] = ()  # the output is one of these token sequences
    pooling: Pooling | None = None
    segments: list[int] = field(default_factory=list)  # an encoder's segment of each token; empty: all 0
    priority: int = 0  # lower is earlier
    salt: str = ""  # prefix-cache namespace, one per tenant


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural-log probabilities of one position, from the model's raw distribution."""

    chosen: float
    top_ids: list[int]
    top: list[float]
    rank: int = 0  # of the chosen token, 1 for the likeliest


@dataclass(slots=True, kw_only=True)
class TokenEvent:
    """New tokens of one choice; the event that carries `finish_reason` is its last."""

    request_id: str
    index: int = 0
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_token: int | None = None  # the id that ended it, when finish_reason is "stop"
    error: str | None = None  # a sentence, when finish_reason is "error"
    invalid: bool = False  # the error is the request's own fault, and would be again
    cached_tokens: int = 0  # prompt tokens taken from the prefix cache
    scheduled: float = 0.0  # seconds on the machine's monotonic clock: its prompt's first step; 0: not known
    preemptions: int = 0  # times that it was set back so far
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)  # from the second token on; once
    embedding: bytes = b""  # float32, little-endian: what a pooled request gives, not normalized


@dataclass(slots=True, kw_only=True)
class EngineStats:
    """The engine's own account of itself. Counters only grow; the rest is the state now."""

    running: int = 0
    waiting: int = 0
    blocks_total: int = 0
    blocks_free: int = 0
    blocks_cached: int = 0  # reusable, held by nobody
    steps: int = 0
    failed_steps: int = 0  # the device did not get through them
    oom_steps: int = 0  # the device had no memory for them; they were computed in smaller ones
    prompt_tokens: int = 0
    generated_tokens: int = 0
    prefix_queries: int = 0  # prompt tokens looked up
    prefix_hits: int = 0  # of those, tokens found
    preemptions: int = 0
    # Sums over steps, so that their ratio is the time-averaged waste.
    kv_allocated_tokens: int = 0
    kv_used_tokens: int = 0

    @property
    def kv_usage(self) -> float:
        """Share of blocks in use by requests, 0 to 1."""
        held = self.blocks_total - self.blocks_free - self.blocks_cached
        return held / self.blocks_total if self.blocks_total else 0.0

    @property
    def kv_waste(self) -> float:
        """Share of allocated cache positions that held no token, averaged over steps."""
        if not self.kv_allocated_tokens:
            return 0.0
        return 1.0 - self.kv_used_tokens / self.kv_allocated_tokens


def _as_texts(texts: Sequence[str] | None) -> tuple[str, ...]:
    # A str is a sequence too: stop="END" would silently mean three stops. None means none.
    return (texts,) if isinstance(texts, str) else tuple(texts or ())


def _texts(name: str, texts: tuple[str, ...], most: int) -> None:
    if len(texts) > most:
        raise InvalidRequestError(f"{name} takes at most {most} strings, got {len(texts)}.", param=name)
    for text in texts:
        if not isinstance(text, str) or not 1 <= len(text) <= MAX_TEXT_CHARACTERS:
            raise InvalidRequestError(
                f"Each string of {name} must have 1 to {MAX_TEXT_CHARACTERS} characters.", param=name
            )


def _integer(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequestError(f"{name} must be an integer, got {_shown(value)}.", param=name)
    if not low <= value <= high:
        limits = f"at least {low}" if value < low else f"at most {high}"
        raise InvalidRequestError(f"{name} must be {limits}, got {_shown(value)}.", param=name)


def _number(name: str, value: object, low: float, high: float, *, low_open: bool = False) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidRequestError(f"{name} must be a number, got {_shown(value)}.", param=name)
    inside = (low < value <= high) if low_open else (low <= value <= high)
    if not inside or math.isnan(value):
        opening = f"above {low:g} and at most {high:g}" if low_open else f"between {low:g} and {high:g}"
        raise InvalidRequestError(f"{name} must be {opening}, got {_shown(value)}.", param=name)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 40 else text[:37] + "..."
