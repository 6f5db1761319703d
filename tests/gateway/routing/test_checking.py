"""One check: what it asks, what it spends, and that it never spends what is not reserved."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from penstock.aio.cascade import Heard
from penstock.aio.monitor import Sampler
from penstock.gateway.inquiry import Inquiry
from penstock.gateway.inside import InsideAnswer
from penstock.gateway.routing.again import again, again_briefly
from penstock.gateway.routing.checking import Check, Checked, Purse, Rubric, checked
from penstock.gateway.routing.router import Route

DAY = 86_400.0
LOW = "The sea is blue because water takes the red out of the light that falls upon it from above."
BEST = "Water swallows long waves first, and so what comes back to us out of the deep is mostly blue."


def chat(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return msgspec.json.encode({"choices": [choice], "usage": {"completion_tokens": 20}})


async def compared(budget: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Checked, Purse, list[str]]:
    """Two answers in prose, of which a rubric that may cost 50 says that the low one is better."""
    asked: list[str] = []

    async def ask(operation: str, body: Mapping[str, Any], *, tier: str, seconds: float = 0) -> InsideAnswer:
        asked.append(tier)
        if tier != "judge":
            return InsideAnswer(200, chat(BEST), 30)
        first = body["messages"][0]["content"].index(LOW) < body["messages"][0]["content"].index(BEST)
        return InsideAnswer(200, chat(f"Verdict: {'first' if first else 'second'}"), 20)

    evening = (time.time() // DAY + 1) * DAY - 1  # all of a day's money may be spent
    monkeypatch.setattr(time, "time", lambda: evening)
    sampler = Sampler(1.0, budget, ["low"])
    sample = sampler.take("low", draw=0.0, cost=40, now=evening)
    assert sample is not None
    question = "Why is the sea blue? Explain it to a child."
    inquiry = Inquiry("createChatCompletion", msgspec.json.encode({"messages": []}))
    # Nothing here asks how the request was routed.
    check = Check(sample, cast(Route, None), inquiry, question, Heard(text=LOW), 20, keep_text=False)
    purse = Purse(sampler, sample)
    result = await checked(check, "top", ask, purse, None, Rubric("judge", lambda _: 50))
    purse.settle()
    assert (sampler.waiting, sampler.spent(evening)) == (0, purse.cost)
    return result, purse, asked


async def test_a_rubric_is_asked_where_the_days_money_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    result, purse, asked = await compared(10_000, monkeypatch)
    assert asked == ["top", "judge"]
    assert purse.cost == 50
    assert result.verdict is not None
    assert (result.verdict.judge, result.verdict.outcome) == ("rubric", "low_better")


async def test_a_rubric_that_could_cost_too_much_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    result, purse, asked = await compared(80, monkeypatch)
    assert asked == ["top"]
    assert purse.cost == 30
    assert result.verdict is not None
    assert result.verdict.judge != "rubric"


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("createResponse", {"input": "a", "previous_response_id": "r"}),
        ("createResponse", {"input": "a", "conversation": "c"}),
        ("createResponse", {"input": "a", "background": True}),
        ("createResponse", {"input": "a", "tools": [{"type": "mcp", "server_url": "u"}]}),
        ("createMessage", {"messages": [], "tools": [{"type": "web_search_20250305"}]}),
        ("createChatCompletion", {"messages": [], "web_search_options": {}}),
        ("createChatCompletion", []),
    ],
)
def test_what_would_act_or_goes_on_from_something_is_not_asked_again(operation: str, body: Any) -> None:
    assert again(operation, body) is None


@pytest.mark.parametrize("store", [{}, {"store": True}, {"store": False}])
def test_what_is_asked_again_is_kept_nowhere(store: dict[str, Any]) -> None:
    assert again("createResponse", {"input": "a", **store}) == {"input": "a", "store": False}
    assert again("createChatCompletion", {"messages": [], "n": 3, **store}) == {"messages": []}


@pytest.mark.parametrize(
    ("asked", "expected", "limit"),
    [({}, 1, 256), ({}, 200, 800), ({}, 9000, 2048), ({"max_tokens": 5}, 1, 5)],
)
def test_the_answer_of_a_check_is_bounded(asked: dict[str, Any], expected: int, limit: int) -> None:
    body = msgspec.json.encode({"messages": [{"role": "user", "content": "Hi."}], **asked})
    bounded = again_briefly(Inquiry("createChatCompletion", body), expected)
    assert bounded is not None
    assert bounded.max_tokens == limit


def test_what_nobody_knows_the_price_of_is_not_checked() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    body = msgspec.json.encode({"messages": [{"role": "user", "content": [picture]}]})
    assert again_briefly(Inquiry("createChatCompletion", body), 10) is None
