"""Checking answers of the lower tiers: the expert is asked the same in the background, and both compared."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from penstock.aio.cascade import Heard, heard_whole
from penstock.aio.judges import judge, read_rubric, rubric_prompt
from penstock.aio.judges.verdict import Embed, Verdict
from penstock.aio.monitor import Sample, Sampler
from penstock.gateway.inquiry import Inquiry
from penstock.gateway.routing.router import Route

logger = logging.getLogger("penstock.routing")

CHECK_SECONDS: Final = 600.0  # for an answer of the expert
RUBRIC_TOKENS: Final = 300
_CHAT: Final = "createChatCompletion"


class InsideAnswer(Protocol):
    @property
    def ok(self) -> bool: ...
    @property
    def body(self) -> bytes: ...
    @property
    def cost(self) -> int: ...


class AskInside(Protocol):
    """Has a tier answer a request of the server's own."""

    def __call__(
        self, operation: str, body: Mapping[str, Any], *, tier: str, seconds: float = ...
    ) -> Awaitable[InsideAnswer]: ...


@dataclass(frozen=True, slots=True)
class Check:
    """An answer to be checked, or a tier to be probed that is not asked such questions any more."""

    sample: Sample
    route: Route
    asked: Inquiry  # by the client, and once more as it is
    question: str
    answer: Heard | None  # of the tier; None: it is to be asked, too
    tokens: int  # of the answer
    keep_text: bool


@dataclass(frozen=True, slots=True)
class Checked:
    check: Check
    verdict: Verdict | None  # None: it could not be checked
    answer: str = ""
    expert_answer: str = ""
    tokens: int = 0
    expert_tokens: int = 0


class Purse:
    """The money of one check, in picodollars: what it may spend is reserved, what it has spent `cost`."""

    def __init__(self, sampler: Sampler, sample: Sample) -> None:
        self._sampler = sampler
        self._sample = sample
        self.cost = 0

    def reserve(self, cost: int, now: float) -> bool:
        """So much more, if the day's money reaches."""
        more = self._sampler.extend(self._sample, cost, now)
        self._sample = more or self._sample
        return more is not None

    def settle(self) -> None:
        """Give back what was not spent. Once."""
        self._sampler.settle(self._sample, self.cost)


@dataclass(frozen=True, slots=True)
class Rubric:
    """Who compares answers in prose."""

    tier: str
    most_cost: Callable[[Inquiry], int]  # picodollars, of being asked this


class _Usage(msgspec.Struct):
    completion_tokens: int = 0
    output_tokens: int = 0


class _Counted(msgspec.Struct):
    usage: _Usage | None = None


_counted: Final = msgspec.json.Decoder(_Counted)


async def checked(
    check: Check, expert: str, ask: AskInside, purse: Purse, embed: Embed | None, rubric: Rubric | None
) -> Checked:
    """Ask the expert, and the tier itself where it is probed; compare. What fails costs what it cost."""
    operation, body = check.asked.operation, check.asked.decoded()

    async def asked(tier: str) -> InsideAnswer:
        reply = await ask(operation, body, tier=tier, seconds=CHECK_SECONDS)
        purse.cost += reply.cost
        return reply

    low, tokens = check.answer, check.tokens
    if low is None:
        reply = await asked(check.sample.tier)
        low, tokens = _heard(operation, reply), _tokens(reply)
        if low is None:
            return Checked(check, None)
    reply = await asked(expert)
    best = _heard(operation, reply)
    if best is None:
        return Checked(check, None)
    verdict = await asyncio.to_thread(_judged, check, low, best, embed)
    if rubric is not None and verdict.kind == "prose":
        verdict = await _ruled(check, low, best, verdict, ask, purse, rubric)
    return Checked(check, verdict, said(low), said(best), tokens, _tokens(reply))


def said(heard: Heard) -> str:
    """An answer as a text: its tool calls, where it makes any, are what it says."""
    if not heard.tools:
        return heard.text
    calls = [{"name": call.name, "arguments": _arguments(call.arguments)} for call in heard.tools]
    return msgspec.json.encode(calls).decode()


def _arguments(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text


def _heard(operation: str, reply: InsideAnswer) -> Heard | None:
    heard = heard_whole(operation, reply.body) if reply.ok else None
    # What does not even end is no answer, and none to hold another against.
    return heard if heard is not None and (heard.text or heard.tools or heard.ending) else None


def _tokens(reply: InsideAnswer) -> int:
    try:
        usage = _counted.decode(reply.body).usage if reply.ok else None
    except msgspec.MsgspecError:
        return 0
    return 0 if usage is None else usage.completion_tokens or usage.output_tokens


def _judged(check: Check, low: Heard, best: Heard, embed: Embed | None) -> Verdict:
    return judge(
        check.question,
        said(low),
        said(best),
        embed,
        low_cut=low.ending == "length",
        expert_cut=best.ending == "length",
    )


async def _ruled(
    check: Check, low: Heard, best: Heard, verdict: Verdict, ask: AskInside, purse: Purse, rubric: Rubric
) -> Verdict:
    """What a model says of two answers in prose; the first verdict if it says nothing or costs too much."""
    asked = rubric_prompt(check.question, low.text, best.text, random.random())
    body = {
        "messages": [{"role": "user", "content": asked.prompt}],
        "temperature": 0,
        "max_tokens": RUBRIC_TOKENS,
    }
    if not purse.reserve(rubric.most_cost(Inquiry(_CHAT, msgspec.json.encode(body))), time.time()):
        return verdict
    reply = await ask(_CHAT, body, tier=rubric.tier, seconds=CHECK_SECONDS)
    purse.cost += reply.cost
    heard = _heard(_CHAT, reply)
    ruled = None if heard is None else read_rubric(heard.text, asked)
    return verdict if ruled is None or not ruled.counts else ruled
