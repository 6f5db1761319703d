"""What is known of one request: who asked for what, its phases, how it ended. Filled in as it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from penstock.observe.trace import Trace

# How a request ended: answered; failed for a reason that is not the client's; refused before a replica had it
# (limit, budget, full queue, deadline, draining); rejected, since it was wrong; aborted by its client.
Outcome = Literal["ok", "failed", "shed", "rejected", "aborted"]
MAX_NAME: Final = 128  # characters of what a client or another server calls something
PhaseName = Literal["admission", "cache", "route", "queue", "attempt", "prefill", "decode"]


class Phase(msgspec.Struct, gc=False):
    """A part of a request's time. Phases of one request may nest (prefill and decode lie in an attempt)."""

    name: PhaseName
    start: float  # seconds, monotonic
    end: float  # 0 while it lasts
    # An attempt's replica, a cache's outcome, a route's tier; `engine` of a queue in an attempt; `upstream`
    # of a prefill at a server that does not tell its own queue from it. Never a client's text.
    detail: str = ""
    failed: bool = False
    span: int = 0  # of an attempt, in traces, where another server has been told of it

    @property
    def seconds(self) -> float:
        return self.end - self.start


class RequestRecord(msgspec.Struct, gc=False):
    """Times are seconds on the monotonic clock, 0 where it has not happened, but for `wall`."""

    id: str
    operation: str
    arrived: float
    wall: float  # seconds since the epoch, when it arrived
    tenant: str = ""
    model: str = ""  # as the client named it, at most MAX_NAME characters
    served_by: str = ""  # the configured model that answered
    tier: str = ""
    reason: str = ""  # why the tier was chosen, for `auto`
    service_class: str = ""
    stream: bool = False
    inside: bool = False  # asked by the server itself
    trace: Trace | None = None
    phases: list[Phase] = []  # a struct copies it
    scheduled: float = 0.0  # when an engine of ours began to compute it
    first_token: float = 0.0  # as the client got it; of a whole answer when it was computed, if that is known
    last_token: float = 0.0
    ended: float = 0.0
    blocked: float = 0.0  # seconds for which the client did not take what was written
    choices: int = 0  # that the tokens below are of; 0: not known
    preemptions: int = 0
    preempted_early: int = 0  # of those, before the first token
    retries: int = 0
    fallbacks: int = 0
    escalations: int = 0  # answers that a second look took back
    cache: str = ""  # what the response cache did: hit, semantic, shared, miss, bypass
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    saved_tokens: int = 0  # of the prompt, left out by policy
    dollars: float = 0.0
    status: int = 0
    code: str = ""  # of the error
    outcome: Outcome = "ok"
    causes: tuple[str, ...] = ()  # why it was slow, the longest first; empty: it was not

    @property
    def seconds(self) -> float:
        return self.ended - self.arrived

    @property
    def ttft(self) -> float | None:
        """Seconds to the first token, or to the first byte of an answer that has no tokens of its own. None:
        there is none, or only the server that gave the answer whole knows."""
        return self.first_token - self.arrived if self.first_token else None

    @property
    def further_tokens(self) -> float | None:
        """Tokens after the first, of a choice on average: choices are computed side by side."""
        return self.completion_tokens / self.choices - 1 if self.choices else None

    @property
    def tpot(self) -> float | None:
        """Mean seconds of a token after the first; None: not known, or there is none."""
        further = self.further_tokens
        if further is None or further < 1 or not self.first_token or self.last_token <= self.first_token:
            return None
        return (self.last_token - self.first_token) / further
