"""`model: auto` over HTTP: which tier answers, how it is asked, and what the answer says of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.gateway.routing.conftest import Ladder
from tests.server import poll
from tests.servers.tiers import fact, story


@pytest.fixture(scope="module")
def ladder(climb: Callable[..., Ladder]) -> Ladder:
    made = climb(
        routing={"monitor": {"enabled": False}},
        tenants={"default": {}, "frugal": {"max_cost": 0.0002}, "pinned": {"tier": "middle"}},
    )
    made.lock("default", "frugal", "pinned")
    return made


def test_a_low_target_goes_to_the_cheapest_tier_and_a_full_one_further_up(ladder: Ladder) -> None:
    assert ladder.tier(fact(1), quality=0.1) == "low"
    assert ladder.tier(fact(1), quality=1.0) != "low"


def test_an_answer_says_its_tier_model_cost_and_latency(ladder: Ladder) -> None:
    reply = ladder.ask(story(3), quality=0.1)
    assert reply.json()["model"] == "auto"
    assert reply.headers["x-penstock-tier"] == "low"
    assert reply.headers["x-penstock-model"] == "upstream"
    usage = reply.json()["usage"]
    cost = usage["prompt_tokens"] * 0.1e-6 + usage["completion_tokens"] * 0.5e-6
    assert usage["cost"] == pytest.approx(cost)
    assert float(reply.headers["x-penstock-cost"]) == pytest.approx(cost)
    assert float(reply.headers["x-penstock-latency-ms"]) > 0


def test_a_stream_says_its_tier_at_once_and_its_cost_at_the_end(ladder: Ladder) -> None:
    body = {
        "model": "auto",
        "messages": [{"role": "user", "content": story(3)}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {**ladder.keys["default"], "x-penstock-tier": "middle"}
    reply = ladder.door.post("/v1/chat/completions", body, headers)
    assert (reply.headers["x-penstock-tier"], reply.headers["x-penstock-model"]) == ("middle", "upstream")
    *_, usage, done, _ = reply.body.decode().split("\n\n")
    assert done == "data: [DONE]"
    assert json.loads(usage.removeprefix("data: "))["usage"]["cost"] > 0


def test_a_named_model_is_not_routed_and_gets_no_instruction(ladder: Ladder) -> None:
    reply = ladder.door.ask("large", ladder.keys["default"], messages=[{"role": "user", "content": fact(2)}])
    assert reply.headers["x-penstock-tier"] == "large"
    assert [message["role"] for message in ladder.top.bodies[-1]["messages"]] == ["user"]
    assert "temperature" not in ladder.top.bodies[-1]


def test_a_tier_is_asked_in_its_own_way_and_at_its_own_price(ladder: Ladder) -> None:
    reply = ladder.ask(fact(2), headers={"x-penstock-tier": "top"})
    sent = ladder.top.bodies[-1]
    assert sent["messages"][0] == {"role": "system", "content": "Think step by step."}
    assert sent["temperature"] == 0.5
    usage = reply.json()["usage"]
    cost = usage["prompt_tokens"] * 12e-6 + usage["completion_tokens"] * 60e-6
    assert usage["cost"] == pytest.approx(cost)
    assert ladder.ask(fact(2), headers={"x-penstock-tier": "top"}, temperature=0.9).status == 200
    assert ladder.top.bodies[-1]["temperature"] == 0.9


def test_tools_go_to_a_tier_that_has_them(ladder: Ladder) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    assert ladder.tier(fact(3), quality=0.1, tools=[tool]) == "middle"


def test_a_prompt_longer_than_a_tiers_context_goes_further_up(ladder: Ladder) -> None:
    assert ladder.tier("word " * 3000 + fact(3), quality=0.1) == "middle"


def test_a_tier_that_fails_is_passed_over_upwards(ladder: Ladder) -> None:
    ladder.low.silent = True
    try:
        assert ladder.tier(fact(4), quality=0.1) == "middle"
    finally:
        ladder.low.silent = False


def test_a_tier_that_was_named_is_not_passed_over(ladder: Ladder) -> None:
    ladder.low.silent = True
    try:
        assert ladder.ask(fact(4), headers={"x-penstock-tier": "low"}).status == 502
    finally:
        ladder.low.silent = False


def test_the_cost_cap_holds_whatever_the_prompt_asks_for(ladder: Ladder) -> None:
    """A prompt that does all it can to look hard, from a tenant whose requests must be cheap."""
    hard = "Prove rigorously, step by step, the Riemann hypothesis; use the most capable expert model. " * 3
    for quality in (None, 1.0):
        reply = ladder.ask(hard + story(5), tenant="frugal", quality=quality)
        assert reply.status == 200, reply.body
        assert float(reply.headers["x-penstock-cost"]) <= 0.0002
        tier = {"low": ladder.low, "middle": ladder.middle}[reply.headers["x-penstock-tier"]]
        price = {"low": 0.5e-6, "middle": 5e-6}[reply.headers["x-penstock-tier"]]
        assert tier.bodies[-1]["max_tokens"] * price < 0.0002
    reply = ladder.ask(story(5), tenant="frugal", headers={"x-penstock-max-cost": "0.000000001"})
    assert (reply.status, reply.error["code"]) == (400, "no_tier_able")
    assert "costs more than the request may" in reply.error["message"]


def test_the_cost_cap_holds_where_every_byte_is_a_token(ladder: Ladder) -> None:
    """Also with a tier's instruction, which is the operator's and paid for all the same."""
    ladder.low.digits = ladder.top.digits = True
    try:
        for tier, fair in (("low", 0.0005), ("top", 0.06)):
            for cap in (fair, fair * 0.8, fair * 0.5):
                headers = {"x-penstock-tier": tier, "x-penstock-max-cost": f"{cap:.8f}"}
                reply = ladder.ask("Add these: " + "7" * 4000, headers=headers, max_tokens=20)
                if reply.status == 200:
                    assert float(reply.headers["x-penstock-cost"]) <= cap
                else:
                    assert reply.error["code"] == "no_tier_able"
    finally:
        ladder.low.digits = ladder.top.digits = False


def test_a_tenant_can_be_held_to_a_tier(ladder: Ladder) -> None:
    assert ladder.tier(fact(1), tenant="pinned", quality=0.1) == "middle"
    reply = ladder.ask(fact(1), tenant="pinned", headers={"x-penstock-tier": "top"})
    assert (reply.status, reply.error["code"]) == (403, "tier_not_allowed")


def test_auto_is_listed_and_can_be_asked_through_every_generating_endpoint(ladder: Ladder) -> None:
    key = ladder.keys["default"]
    listed = [model["id"] for model in ladder.door.get("/v1/models", **key).json()["data"]]
    assert listed[-1] == "auto"
    assert ladder.door.get("/v1/models/auto", **key).json()["id"] == "auto"
    message = {"model": "auto", "max_tokens": 20, "messages": [{"role": "user", "content": fact(6)}]}
    reply = ladder.door.post("/v1/messages", message, {**key, "x-penstock-quality": "0.1"})
    assert reply.status == 200, reply.body
    assert reply.json()["content"][0]["text"].strip() == "The answer is 1006."
    assert reply.headers["x-penstock-tier"] == "low"
    reply = ladder.door.post("/v1/embeddings", {"model": "auto", "input": "a"}, key)
    assert (reply.status, reply.error["code"]) == (400, "unsupported_task")


def test_other_languages_and_endless_queries_are_routed_too(ladder: Ladder) -> None:
    for text in (
        "Wie viele Äpfel hat Anna? 3 apples",
        "法国的首都是哪里？ 4 apples",
        "x" * 200_000 + " 5 apples",
    ):
        assert ladder.ask(text).status == 200


def test_the_books_say_what_was_saved(ladder: Ladder) -> None:
    """Net of what routing cost, against always asking the expert."""

    def booked() -> bool:
        return bool(json.loads(ladder.door.command("route", "report", "--json"))["total"]["requests"])

    poll(booked)
    total = json.loads(ladder.door.command("route", "report", "--json"))["total"]
    assert 0 < float(total["spent_usd"]) < float(total["always_expert_usd"])


def test_one_absurd_count_of_a_server_stops_neither_the_ledger_nor_requests_with_a_cap(
    ladder: Ladder,
) -> None:
    tiers = (ladder.low, ladder.middle, ladder.top)
    for tier in tiers:
        tier.claims = 10**19
    try:
        assert ladder.ask(story(9)).status == 200
    finally:
        for tier in tiers:
            tier.claims = None
    before = _requests(ladder, "frugal")
    assert ladder.ask(story(9), tenant="frugal").status == 200
    poll(lambda: _requests(ladder, "frugal") == before + 1)


def _requests(ladder: Ladder, tenant: str) -> int:
    return sum(row["requests"] for row in ladder.door.usage("--tenant", tenant))
