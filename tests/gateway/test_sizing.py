"""Right-sizing: caps of answers, budgets of prompts, and the turns a long chat can do without."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import InvalidRequestError
from penstock.gateway.inquiry import Inquiry
from penstock.gateway.sizing import cap_output, estimated_tokens, smaller, trimmed
from tests.gateway.door import CHAT, TEXT, Door, behind, save_tiny_chat
from tests.server import poll
from tests.servers.gated import OpenAIServer

# ---------------------------------------------------------------- caps, pure


def capped(cap: int | None, operation: str = "createChatCompletion", **fields: Any) -> dict[str, Any] | None:
    inquiry = Inquiry(operation, json.dumps(fields).encode())
    return json.loads(inquiry.encode()) if cap_output(inquiry, cap) else None


def test_a_wish_above_the_cap_is_lowered_and_one_below_is_left_alone() -> None:
    assert capped(10, max_tokens=11) == {"max_tokens": 10}
    assert capped(10, max_tokens=10) is None
    assert capped(10, max_tokens=0) is None
    assert capped(None, max_tokens=10**9) is None
    assert capped(10) == {"max_tokens": 10}, "who says nothing would get as much as there is"
    assert capped(10, max_tokens=None) == {"max_tokens": 10}
    assert capped(10, "createResponse") == {"max_output_tokens": 10}
    assert capped(10, "createEmbedding", input="a") is None


def test_no_name_of_the_limit_leads_around_the_cap() -> None:
    assert capped(10, max_completion_tokens=99) == {"max_completion_tokens": 10}
    assert capped(10, max_completion_tokens=99, max_tokens=99) == {
        "max_completion_tokens": 10,
        "max_tokens": 10,
    }


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ([1] * 1000, 1000),
        ([[1] * 1000, [128000] * 10], 1010),
        ([128000] * 10, 10),
        (["word " * 20, [1] * 1000], 1026),
        ([], 1),
        ("word " * 20, 25),
    ],
)
@pytest.mark.parametrize(
    ("operation", "field"), [("createCompletion", "prompt"), ("createEmbedding", "input")]
)
def test_token_ids_are_counted_one_by_one(operation: str, field: str, prompt: Any, tokens: int) -> None:
    inquiry = Inquiry(operation, json.dumps({field: prompt}).encode())
    assert estimated_tokens(inquiry) == tokens


def test_the_least_of_the_limits_that_there_are_counts() -> None:
    assert smaller(None, None) is None
    assert smaller(None, 3) == 3
    assert smaller(0, 3, None) == 0


# -------------------------------------------------------------- turns, pure


def message(role: str, content: Any = "x", **fields: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps({"role": role, "content": content, **fields}).encode())


def roles(messages: list[msgspec.Raw] | None) -> list[str] | None:
    return None if messages is None else [json.loads(bytes(each))["role"] for each in messages]


def test_the_oldest_turns_go_and_the_system_and_the_last_turn_stay() -> None:
    chat = [
        message(role) for role in ("system", "user", "assistant", "developer", "user", "assistant", "user")
    ]
    assert roles(trimmed(chat, 5, len)) == ["system", "developer", "user", "assistant", "user"]
    assert roles(trimmed(chat, 3, len)) == ["system", "developer", "user"]
    assert roles(trimmed(chat, 0, len)) == ["system", "developer", "user"], "more cannot be left out"
    assert trimmed([message("system"), message("user")], 0, len) is None


def test_a_tools_result_is_never_parted_from_its_call() -> None:
    call = {"tool_calls": [{"id": "a"}]}
    turn = [message("user"), message("assistant", None, **call), message("tool", tool_call_id="a")]
    chat = [message("system"), *turn, message("assistant"), *turn]
    for budget in range(len(chat) + 1):
        kept = roles(trimmed(chat, budget, len))
        assert kept is not None
        assert kept.count("tool") == kept.count("user") == 1


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        trimmed([msgspec.Raw(b'{"role":"\\ud800"}'), message("user")], 1, len)
    assert trimmed([msgspec.Raw(b"1"), msgspec.Raw(b"[]")], 1, len) is None, (
        "a server will say what it thinks"
    )


def cut(messages: list[msgspec.Raw], turns: int) -> list[msgspec.Raw]:
    """Without so many turns from the front, the plain way."""
    rest, seen = [], 0
    for each, role in zip(messages, roles(messages) or [], strict=True):
        if role != "system":
            seen += role == "user" or not seen
        if role == "system" or seen > turns:
            rest.append(each)
    return rest


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_chat_as_little_as_needed_is_left_out(seed: int) -> None:
    draw = random.Random(seed)
    kinds = [draw.choice(["system", "user", "assistant", "tool"]) for _ in range(30)]
    chat = [message(role, "x" * draw.randrange(40)) for role in kinds]

    def size(messages: list[msgspec.Raw]) -> int:
        return sum(len(bytes(each)) for each in messages)

    spoken = [role for role in kinds if role != "system"]
    turns = spoken.count("user") + (spoken[0] != "user")
    cuts = [cut(chat, gone) for gone in range(1, turns)]
    for budget in (0, draw.randrange(size(chat)), draw.randrange(size(chat)), size(chat)):
        expected = next((rest for rest in cuts if size(rest) <= budget), cuts[-1])
        assert trimmed(chat, budget, size) == expected


# ------------------------------------------------------------ at a real door

BUDGET = 60


@pytest.fixture(scope="module")
def door(upstream: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("sizing")
    limits = {"prompt_budget": BUDGET, "max_tokens": 8}
    config = {
        "models": {
            "tiny": {"backends": [{"engine": str(save_tiny_chat(folder / "model"))}], "max_tokens": 20},
            "remote": behind(upstream.url, max_tokens=20),
        },
        "tenants": {"default": {}, "strict": limits, "trims": {**limits, "trim_history": True}},
    }
    running = Door(folder / "door", config)
    yield running
    running.stop()
    assert "Traceback" not in Path(running._log.name).read_text()


Keys = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def keys(door: Door) -> Keys:
    made = {tenant: door.key(tenant) for tenant in ("default", "strict", "trims")}
    poll(lambda: door.get("/v1/models").status == 401)
    return made


def long_chat(turns: int = 6) -> list[dict[str, Any]]:
    chat: list[dict[str, Any]] = [{"role": "system", "content": "be brief"}]
    for number in range(turns):
        said = f"turn {number} has words"
        chat += [{"role": "user", "content": said}, {"role": "assistant", "content": "fine"}]
    return [*chat, {"role": "user", "content": "last"}]


@pytest.mark.parametrize("model", ["tiny", "remote"])
def test_answers_are_capped_by_tenant_and_by_model(door: Door, keys: Keys, model: str) -> None:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50}
    if model == "tiny":
        body["ignore_eos"] = True
    for tenant, cap in (("default", 20), ("strict", 8)):
        for wish in ({}, {"max_tokens": None}, {"max_tokens": None, "max_completion_tokens": 30}):
            reply = door.post(CHAT, {**body, **wish}, keys[tenant])
            assert reply.status == 200, reply.body
            assert reply.headers["x-penstock-max-tokens"] == str(cap)
            assert reply.json()["usage"]["completion_tokens"] == cap
    small = door.post(CHAT, {**body, "max_tokens": 2}, keys["strict"])
    assert small.headers["x-penstock-max-tokens"] is None
    assert small.json()["usage"]["completion_tokens"] == 2
    stream = door.post(
        TEXT, {"model": model, "prompt": "hi", "max_tokens": 50, "stream": True}, keys["strict"]
    )
    assert stream.headers["x-penstock-max-tokens"] == "8"


@pytest.mark.parametrize("model", ["tiny", "remote"])
def test_a_prompt_over_its_budget_is_refused_with_both_numbers(door: Door, keys: Keys, model: str) -> None:
    for path, prompt in ((CHAT, {"messages": long_chat(20)}), (TEXT, {"prompt": "many words " * 40})):
        for tenant in ("strict", *(["trims"] if path == TEXT else [])):
            reply = door.post(path, {"model": model, "max_tokens": 1, **prompt}, keys[tenant])
            assert reply.status == 400, reply.body
            assert (reply.error["code"], reply.error["param"]) == (
                "prompt_budget_exceeded",
                next(iter(prompt)),
            )
            assert str(BUDGET) in reply.error["message"]


@pytest.mark.parametrize("model", ["tiny", "remote"])
def test_old_turns_are_left_out_for_a_tenant_that_allows_it(
    door: Door, keys: Keys, upstream: OpenAIServer, model: str
) -> None:
    before = billed(door)
    reply = door.post(CHAT, {"model": model, "messages": long_chat(), "max_tokens": 1}, keys["trims"])
    assert reply.status == 200, reply.body
    saved = int(reply.headers["x-penstock-tokens-saved"])
    assert saved > 0
    if model == "tiny":
        whole = door.post("/tokenize", {"model": "tiny", "messages": long_chat()}, keys["default"]).json()[
            "count"
        ]
        assert reply.json()["usage"]["prompt_tokens"] == whole - saved <= BUDGET
    else:
        sent = upstream.bodies[-1]["messages"]
        assert (sent[0], sent[-1]) == (long_chat()[0], long_chat()[-1])
        assert sent[1:] == long_chat()[len(long_chat()) - len(sent) + 1 :], "the newest, in order"
        assert 2 < len(sent) < len(long_chat())
    poll(lambda: billed(door) == before + saved)


@pytest.mark.parametrize("model", ["tiny", "remote"])
def test_a_last_turn_that_is_too_long_by_itself_is_refused(door: Door, keys: Keys, model: str) -> None:
    messages = [*long_chat(2), {"role": "user", "content": "many words " * 40}]
    reply = door.post(CHAT, {"model": model, "messages": messages}, keys["trims"])
    assert (reply.status, reply.error["code"]) == (400, "prompt_budget_exceeded")
    assert "even without its earlier turns" in reply.error["message"]


@pytest.mark.parametrize(
    "messages", ["word " * 400, {"a": "word " * 400}, [1, "word " * 400], ["\ud800" * 80] * 3]
)
def test_what_cannot_be_trimmed_is_a_clients_mistake(door: Door, keys: Keys, messages: Any) -> None:
    for model in ("tiny", "remote"):
        reply = door.post(CHAT, {"model": model, "messages": messages}, keys["trims"])
        assert reply.status == 400, reply.body
        assert reply.error["type"] == "invalid_request_error"


def billed(door: Door) -> int:
    """Tokens that were saved so far."""
    return sum(int(row["saved_tokens"]) for row in door.usage("--tenant", "trims"))
