"""Checking answers of the lower tiers: the expert is asked the same in the background, and both compared."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from penstock.aio.cascade import Heard, heard_whole
from penstock.aio.judges import judge, read_rubric, rubric_prompt
from penstock.aio.judges.verdict import Embed, Verdict
from penstock.aio.monitor import Sample
from penstock.gateway.routing.router import Route

logger = logging.getLogger("penstock.routing")

CHECK_SECONDS: Final = 600.0  # for an answer of the expert
RUBRIC_TOKENS: Final = 300
_FORMS: Final = ("stream", "stream_options", "logprobs", "top_logprobs", "n", "best_of", "store", "metadata")


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
    operation: str
    body: bytes  # as the client sent it
    question: str
    answer: Heard | None  # of the tier; None: it is to be asked, too
    tokens: int  # of the answer
    keep_text: bool


@dataclass(frozen=True, slots=True)
class Checked:
    check: Check
    verdict: Verdict | None  # None: it could not be checked
    cost: int  # picodollars
    answer: str = ""
    expert_answer: str = ""
    tokens: int = 0
    expert_tokens: int = 0


class _Usage(msgspec.Struct):
    completion_tokens: int = 0
    output_tokens: int = 0


class _Counted(msgspec.Struct):
    usage: _Usage | None = None


_fields: Final = msgspec.json.Decoder(dict[str, Any])
_counted: Final = msgspec.json.Decoder(_Counted)


async def checked(
    check: Check, expert: str, ask: AskInside, embed: Embed | None, rubric: str | None
) -> Checked:
    """Ask the expert, and the tier itself where it is probed; compare. What fails costs what it cost."""
    body = {name: value for name, value in _fields.decode(check.body).items() if name not in _FORMS}
    cost, low, tokens = 0, check.answer, check.tokens
    if low is None:
        reply = await ask(check.operation, body, tier=check.sample.tier, seconds=CHECK_SECONDS)
        cost += reply.cost
        low, tokens = _heard(check, reply), _tokens(reply)
    reply = await ask(check.operation, body, tier=expert, seconds=CHECK_SECONDS)
    cost += reply.cost
    best = _heard(check, reply)
    if low is None or best is None:
        return Checked(check, None, cost)
    verdict = await asyncio.to_thread(_judged, check, low, best, embed)
    if rubric is not None and verdict.kind == "prose":
        verdict, paid = await _ruled(check, low, best, verdict, ask, rubric)
        cost += paid
    return Checked(check, verdict, cost, said(low), said(best), tokens, _tokens(reply))


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


def _heard(check: Check, reply: InsideAnswer) -> Heard | None:
    return heard_whole(check.operation, reply.body) if reply.ok else None


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
    check: Check, low: Heard, best: Heard, verdict: Verdict, ask: AskInside, rubric: str
) -> tuple[Verdict, int]:
    """What a model says of two answers in prose, and what that cost; the first verdict if it says nothing."""
    asked = rubric_prompt(check.question, low.text, best.text, random.random())
    body = {
        "messages": [{"role": "user", "content": asked.prompt}],
        "temperature": 0,
        "max_tokens": RUBRIC_TOKENS,
    }
    reply = await ask("createChatCompletion", body, tier=rubric, seconds=CHECK_SECONDS)
    heard = heard_whole("createChatCompletion", reply.body) if reply.ok else None
    if heard is None:
        return verdict, reply.cost
    ruled = read_rubric(heard.text, asked)
    return (ruled if ruled.counts else verdict), reply.cost
