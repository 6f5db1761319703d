"""A sequence: one choice of one request on its way through the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.engine.memory.manager import BlockTable
from penstock.engine.request import FinishReason, Request
from penstock.engine.schedule.guide import Guide

# A user's own change of the logits: (prompt, output so far, logits) -> logits; the last two are tensors.
LogitsProcessor = Callable[[list[int], list[int], Any], Any]


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens known so far, how many of them are computed, and where they live.

    There is no prefill or decode phase: `remaining` tokens are known and not yet computed.
    When they all are, the next token is sampled; or, if none is wanted, the sequence is complete.
    """

    request: Request
    index: int  # which of the request's n choices
    # The one order of the scheduler, smallest first: arrival time, later by one ageing period for
    # each priority level, then order of submission. Waiting changes nothing in it, and that is
    # the ageing: a newcomer of better priority loses to whoever has waited long enough.
    rank: tuple[float, int]
    arrival: float  # seconds, the engine's clock
    tokens: list[int]  # prompt, then output
    limit: int  # most tokens the sequence may ever have
    table: BlockTable
    origin: Sequence | None = None  # the first choice, whose prompt blocks this one forks
    processors: tuple[LogitsProcessor, ...] = ()
    computed: int = 0
    slot: int = -1  # permanent place on the device while running
    admitted: bool = False  # has run before
    cached: int = 0  # prompt tokens not computed at first admission
    finish_reason: FinishReason | None = None
    stop_token: int | None = None
    prompt_len: int = field(init=False)
    ends: frozenset[int] = field(init=False)  # token ids that end it
    guide: Guide | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        params = self.request.params
        self.prompt_len = len(self.request.prompt)
        self.ends = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            self.ends |= set(self.request.eos_token_ids)
        if self.request.guided:
            # Without them a choice that begins another could never be given.
            self.ends |= set(self.request.eos_token_ids)
            # One tree for all choices of a request: it may be large.
            shared = None if self.origin is None else self.origin.guide
            self.guide = shared or Guide(self.request.guided, sorted(self.ends))

    def goes_before(self, other: Sequence) -> bool:
        """Whether it is more urgent: of better priority, which the other has not made up by waiting."""
        return self.request.priority < other.request.priority and self.rank < other.rank

    @property
    def remaining(self) -> int:
        return len(self.tokens) - self.computed

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_len :]

    @property
    def generates(self) -> bool:
        """Whether tokens are wanted at all, and not only what the model makes of the prompt."""
        return self.limit > self.prompt_len

    @property
    def reads_prompt(self) -> bool:
        """Whether something is wanted of every prompt token, so that none may come from the cache."""
        wanted = self.request.params.prompt_logprobs is not None or self.request.pooling == "mean"
        return wanted and self.origin is None and not self.num_output

    @property
    def running(self) -> bool:
        return self.slot >= 0

    @property
    def prompt_computed(self) -> bool:
        return self.computed >= self.prompt_len

    @property
    def can_fork(self) -> bool:
        """Whether the first choice is running and has the prompt computed."""
        origin = self.origin
        return origin is not None and not self.admitted and origin.running and origin.prompt_computed

    @property
    def awaits_fork(self) -> bool:
        """Whether the first choice has yet to compute the prompt that this one will share."""
        origin = self.origin
        if origin is None or self.admitted or origin.finish_reason is not None:
            return False
        return not origin.prompt_computed

    def append(self, token: int) -> None:
        """Take a sampled token and see whether it is the last; a negative one: none could be drawn."""
        if token < 0:
            self.finish_reason = "error"
            return
        self.tokens.append(token)
        if token in self.ends and self.num_output >= self.request.params.min_tokens:
            self.finish_reason, self.stop_token = "stop", token
        elif self.guide is not None and self.guide.over(self.output):
            self.finish_reason = "stop"
        elif len(self.tokens) >= self.limit:
            self.finish_reason = "length"

    def close(self, *, failed: bool) -> None:
        """The prompt is computed and no token is wanted."""
        self.finish_reason = "error" if failed else "length" if self.request.pooling is None else "stop"
