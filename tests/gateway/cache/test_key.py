"""Which requests are the same to the cache."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from penstock.gateway.cache.key import Asker, Question, question_of, says_twice, scope_name

ASKER = Asker("acme", "small")
CHAT = "createChatCompletion"
SAID = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 2?"}]
BODY = {"model": "m", "temperature": 0, "messages": SAID}


def question(
    body: dict[str, Any], operation: str = CHAT, asker: Asker = ASKER, *, stream: bool = False
) -> Question:
    found = question_of(asker, operation, body, stream=stream)
    assert found is not None
    return found


def with_last(text: Any) -> dict[str, Any]:
    return {**BODY, "messages": [SAID[0], {"role": "user", "content": text}]}


@pytest.mark.parametrize(
    "same",
    [
        {**BODY, "temperature": 0.0},
        {
            **BODY,
            "stream": True,
            "stream_options": {"include_usage": True},
            "user": "u",
            "service_tier": "flex",
        },
        {
            **BODY,
            "metadata": {"a": "b"},
            "model": "an alias",
            "n": 1,
            "tools": [],
            "stop": None,
            "top_p": 1.0,
        },
        {**BODY, "response_format": {"type": "text"}, "logprobs": False, "presence_penalty": 0},
        {"messages": [dict(reversed(message.items())) for message in SAID], "temperature": 0},
    ],
)
def test_what_does_not_change_an_answer_does_not_change_the_key(same: dict[str, Any]) -> None:
    assert question(same).key == question(BODY).key
    assert question(same).partition == question(BODY).partition


@pytest.mark.parametrize(
    "other",
    [
        {**BODY, "max_tokens": 5},
        {**BODY, "seed": 1},
        {**BODY, "top_p": 0.5},
        {**BODY, "tools": [{"type": "function", "function": {"name": "f"}}]},
        {**BODY, "response_format": {"type": "json_object"}},
        {**BODY, "something_new": 1},
        {**BODY, "messages": SAID[1:]},
        {**BODY, "messages": [{"role": "system", "content": "Be long."}, SAID[1]]},
        {**BODY, "messages": [SAID[0], SAID[1], {"role": "assistant", "content": "4"}, SAID[1]]},
    ],
)
def test_whatever_could_change_an_answer_changes_key_and_partition(other: dict[str, Any]) -> None:
    assert question(other).key != question(BODY).key
    assert question(other).partition != question(BODY).partition


@pytest.mark.parametrize(
    "asker",
    [
        Asker("acme2", "small"),
        Asker("acme", "large"),
        Asker("acme", "small", salt="s"),
        Asker("acme", "small", part="s"),
        Asker("acme", "small", revision=b"1"),
    ],
)
def test_nobody_else_has_the_same_key(asker: Asker) -> None:
    assert question(BODY, asker=asker).key != question(BODY).key
    assert question(BODY, asker=asker).partition != question(BODY).partition


def test_two_names_of_the_longest_answer_are_one() -> None:
    assert question({**BODY, "max_completion_tokens": 9}).key == question({**BODY, "max_tokens": 9}).key


def test_only_the_last_words_of_the_user_are_outside_the_partition() -> None:
    one, two = question(with_last("How tall is Everest?")), question(with_last("How high is Everest?"))
    assert one.partition == two.partition
    assert one.key != two.key
    assert (one.text, two.text) == ("How tall is Everest?", "How high is Everest?")
    assert question(with_last([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])).text == "a\nb"


@pytest.mark.parametrize(
    "body",
    [
        with_last([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]),
        {**BODY, "messages": [*SAID, {"role": "tool", "tool_call_id": "1", "content": "4"}]},
        {**BODY, "logprobs": True},
        {**BODY, "n": 2},
    ],
)
def test_what_is_more_than_a_text_has_no_partition_but_a_key(body: dict[str, Any]) -> None:
    assert question(body).partition is None


@pytest.mark.parametrize(
    "fields", [{"temperature": 0}, {"top_k": 1}, {"seed": 0}, {"seed": 7, "temperature": 1}]
)
def test_a_request_is_deterministic_if_nothing_is_drawn_or_from_a_seed(fields: dict[str, Any]) -> None:
    assert question({"messages": SAID, **fields}).deterministic


@pytest.mark.parametrize("fields", [{}, {"temperature": 0.1}, {"temperature": None}, {"temperature": False}])
def test_a_request_that_draws_is_not(fields: dict[str, Any]) -> None:
    assert not question({"messages": SAID, **fields}).deterministic


def test_vectors_and_scores_are_deterministic() -> None:
    assert question({"input": "a"}, "createEmbedding").deterministic
    assert question({"query": "a", "documents": ["b"]}, "rerank").deterministic
    assert question({"text_1": "a", "text_2": "b"}, "score").deterministic
    wider = question({"input": "a", "encoding_format": "base64"}, "createEmbedding")
    assert wider.key != question({"input": "a"}, "createEmbedding").key


def test_how_many_parts_an_answer_must_have_is_known() -> None:
    assert question({**BODY, "n": 3}).parts == 3
    assert question({"prompt": ["a", "b"], "n": 2, "temperature": 0}, "createCompletion").parts == 4
    assert question({"input": [1, 2, 3]}, "createEmbedding").parts == 1
    assert question({"input": ["a", "b"]}, "createEmbedding").parts == 2


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        (CHAT, {"store": True}),
        (CHAT, {"web_search_options": {}}),
        (CHAT, {"return_token_ids": True}),
        (CHAT, {"tools": [{"type": "web_search"}]}),
        ("createResponse", {}),  # the server keeps it unless told otherwise
        ("createResponse", {"store": False, "previous_response_id": "resp_1"}),
        ("createResponse", {"store": False, "tools": [{"type": "file_search"}]}),
        ("createMessage", {"mcp_servers": [{}]}),
        ("listModels", {}),
    ],
)
def test_what_depends_on_more_than_the_request_is_not_kept(operation: str, fields: dict[str, Any]) -> None:
    body = {**BODY, "input": "x", **fields}
    assert question_of(ASKER, operation, body, stream=False) is None


def test_a_named_stream_and_its_whole_answer_are_two_things() -> None:
    body = {"input": "x", "store": False, "temperature": 0}
    whole = question(body, "createResponse")
    assert question(body, "createResponse", stream=True).key != whole.key
    assert question(BODY, stream=True).key == question(BODY).key


def crafted(draw: random.Random) -> tuple[str, str, str, str]:
    """A tenant, salt, tier and text of the pieces that a careless joining would mistake for borders."""
    pieces = [
        "a",
        "b",
        "",
        "/",
        "\x00",
        "|",
        ":",
        '"',
        '","',
        "acme",
        "=acme",
        "\\",
        "\x00\x00\x00\x00",
        "}{",
        "é",
    ]
    return tuple("".join(draw.choices(pieces, k=draw.randint(0, 4))) for _ in range(4))  # type: ignore[return-value]


def test_no_crafted_tenant_or_text_meets_another_tenants_entry() -> None:
    draw = random.Random(5)
    seen: dict[bytes, tuple[str, str]] = {}
    pairs = hits = 0
    while pairs < 10_000:
        tenant, salt, tier, text = crafted(draw)
        # The same characters, cut at another place: what joins them alike must not be alike.
        joined = tenant + salt + tier
        cut = draw.randint(0, len(joined))
        for who, rest in ((tenant, (salt, tier)), (joined[:cut], (joined[cut:], ""))):
            asker = Asker(who, rest[1], rest[0], part=text)
            found = question(with_last(text or "x"), asker=asker)
            for key in (found.key, found.partition or b""):
                hits += key in seen and seen[key][0] != who
                seen[key] = (who, text)
        pairs += 1
    assert hits == 0
    assert len({who for who, _ in seen.values()}) > 1000


def test_scopes_of_tenants_and_models_do_not_meet() -> None:
    scopes = [(None, None), ("a", None), (None, "a"), ("a", "a"), ("", None), ("a", ""), ("=a", None)]
    assert len({scope_name(*scope) for scope in scopes}) == len(scopes)


@pytest.mark.parametrize(
    ("data", "twice"),
    [
        (b'{"a": 1, "b": [{"a": ":"}, {"a": "\\":\\\\"}]}', False),
        (b'{"a": [{"b": 1, "b": 1}]}', True),
        (b'{"a": 1, "\\u0061": 2}', True),
        (b'{"a": {}, "b": {}, "a": {"c": "\\\\"}}', True),
    ],
)
def test_a_field_that_is_said_twice_is_seen_at_any_depth(data: bytes, twice: bool) -> None:
    assert says_twice(data, json.loads(data)) is twice
