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

    There is no prefill or decode phase: `remaining` tokens are there and not yet computed.
    When they all are, the next token is sampled; or, if none is wanted, the sequence is complete.

    A step counts as computed as soon as it is planned: the device executes steps in order, so whatever
    is planned later finds it done. Its token is `pending` until the host is told.
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
    settled: int = 0  # of those, computed by steps whose results have been taken
    pending: int = 0  # tokens that come after `tokens`, sampled by steps whose results are not known yet
    slot: int = -1  # permanent place on the device while running
    admitted: bool = False  # has run before
    cached: int = 0  # prompt tokens not computed at first admission
    scheduled: float = 0.0  # seconds, the engine's clock, of first admission
    preemptions: int = 0
    finish_reason: FinishReason | None = None
    stop_token: int | None = None
    prompt_len: int = field(init=False)
    ends: frozenset[int] = field(init=False)  # token ids that end it
    guide: Guide | None = field(init=False, default=None)
    generates: bool = field(init=False)  # tokens are wanted, and not only what the model makes of the prompt
    needs_known_tokens: bool = field(init=False)  # the host must know each token before it draws the next

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
        self.generates = self.limit > self.prompt_len
        self.needs_known_tokens = (
            self.guide is not None
            or bool(self.processors)
            or any(len(word) > 1 for word in self.request.bad_words)
        )

    def goes_before(self, other: Sequence) -> bool:
        """Whether it is more urgent: of better priority, which the other has not made up by waiting."""
        return self.request.priority < other.request.priority and self.rank < other.rank

    @property
    def remaining(self) -> int:
        return len(self.tokens) + self.pending - self.computed

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_len :]

    @property
    def reads_prompt(self) -> bool:
        """Whether something is wanted of every prompt token, so that none may come from the cache."""
        wanted = self.request.params.prompt_logprobs is not None or self.request.pooling == "mean"
        # Who computes more than the prompt has an output, known or not.
        unanswered = not self.num_output and self.computed <= self.prompt_len
        return wanted and self.origin is None and unanswered

    @property
    def running(self) -> bool:
        return self.slot >= 0

    @property
    def prompt_computed(self) -> bool:
        # Not while its step is under way: blocks that are yet to be published may still be exchanged for
        # equal ones, and who shared them before would hold others than the prefix tree has.
        return self.settled >= self.prompt_len

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

    def append(self, token: int) -> bool:
        """Take a sampled token, a negative one where none could be drawn; whether the sequence is over."""
        if token < 0:
            self.finish_reason = "error"
            return True
        self.tokens.append(token)
        if token in self.ends and self.num_output >= self.request.params.min_tokens:
            self.finish_reason, self.stop_token = "stop", token
        elif self.guide is not None and self.guide.over(self.output):
            self.finish_reason = "stop"
        elif len(self.tokens) >= self.limit:
            self.finish_reason = "length"
        else:
            return False
        return True

    def close(self, *, failed: bool) -> None:
        """The prompt is computed and no token is wanted."""
        self.finish_reason = "error" if failed else "length" if self.request.pooling is None else "stop"
