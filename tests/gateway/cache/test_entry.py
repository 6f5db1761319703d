"""What is kept of an answer, and how it is given again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.gateway.cache.assemble import assembled, payloads
from penstock.gateway.cache.entry import Counted, Entry, entry_of_answer, entry_of_whole
from penstock.gateway.cache.named import ended_named
from penstock.gateway.cache.replay import PIECE, Delivery, Renewed, stream, whole
from penstock.protocol.shapes import UsageCount
from tests.servers.openai import event

CHAT, TEXT = "createChatCompletion", "createCompletion"
USAGE = UsageCount(7, 4)
DELIVERY = Delivery(id="new", created=99, model="alias", charges={"cost": 0.0, "latency_ms": 1.5})
DONE = b"data: [DONE]\n\n"


def delivery(**fields: Any) -> Delivery:
    return Delivery(id="new", created=99, model="alias", charges={"latency_ms": 1.5}, **fields)


def chat(*choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11, "cost": 3, "latency_ms": 5}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": list(choices), "usage": usage, **fields}


def choice(index: int = 0, reason: str | None = "stop", **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "4.", **message}
    return {"index": index, "message": said, "logprobs": None, "finish_reason": reason}


def kept(answer: dict[str, Any], operation: str = CHAT, parts: int = 1) -> Entry | None:
    return entry_of_whole(operation, json.dumps(answer).encode(), USAGE, "upstream", 5.0, parts=parts)


def streamed(entry: Entry, **fields: Any) -> bytes:
    return b"".join(stream(entry, delivery(**fields)))


def chunks(events: bytes) -> list[dict[str, Any]]:
    *data, done = payloads(events)
    assert done == b"[DONE]"
    return [json.loads(payload) for payload in data]


def test_a_whole_answer_comes_back_with_its_own_id_time_name_and_charges() -> None:
    entry = kept(chat(choice(), system_fingerprint="fp"))
    assert entry is not None
    answer = json.loads(whole(entry, DELIVERY))
    assert answer["choices"] == [choice()]
    assert [answer[name] for name in ("id", "created", "model", "system_fingerprint")] == [
        "chatcmpl-new",
        99,
        "alias",
        "fp",
    ]
    assert answer["usage"]["total_tokens"] == 11
    assert answer["usage"]["cost"] == 0
    assert answer["usage"]["latency_ms"] == 1.5


CALLS = [
    {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
    {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
]
ANSWERS = [
    chat(choice()),
    chat(choice(content="x" * (3 * PIECE + 5))),
    chat(choice(0, content="one"), choice(1, "length", content="two")),
    chat(choice(reason="tool_calls", content=None, tool_calls=CALLS)),
    chat(choice(reasoning_content="hm", reasoning="hm")),
    chat({**choice(), "logprobs": {"content": [{"token": "4"}, {"token": "."}], "refusal": None}}),
    chat({**choice(), "stop_reason": "END"}),
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_whole_answer_replayed_as_a_stream_makes_the_same_whole_answer(answer: dict[str, Any]) -> None:
    entry = kept(answer, parts=len(answer["choices"]))
    assert entry is not None
    found = assembled(CHAT, streamed(entry, include_usage=True))
    assert found is not None
    assert found["choices"] == answer["choices"]
    again = entry_of_answer(CHAT, found, USAGE, "upstream", 5.0, parts=len(answer["choices"]))
    assert again is not None
    assert json.loads(again.body)["choices"] == json.loads(entry.body)["choices"]


def test_a_replayed_stream_begins_with_the_role_and_ends_with_reason_usage_and_mark() -> None:
    entry = kept(chat(choice()))
    assert entry is not None
    first, content, finish, usage = chunks(streamed(entry, include_usage=True))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert content["choices"][0]["delta"] == {"content": "4."}
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 4
    assert first["usage"] is None
    assert {chunk["id"] for chunk in (first, content, finish, usage)} == {"chatcmpl-new"}
    assert {chunk["object"] for chunk in (first, usage)} == {"chat.completion.chunk"}
    assert all("usage" not in chunk for chunk in chunks(streamed(entry)))


def test_running_usage_grows_to_what_it_was() -> None:
    entry = kept(chat(choice(content="x" * (5 * PIECE))))
    assert entry is not None
    found = chunks(streamed(entry, include_usage=True, running_usage=True))
    counts = [chunk["usage"]["completion_tokens"] for chunk in found]
    assert counts == sorted(counts)
    assert counts[-1] == 4


def test_text_completions_replay_in_both_forms() -> None:
    scores = {
        "tokens": ["a", "b"],
        "token_logprobs": [-1.0, -2.5],
        "top_logprobs": [None, {}],
        "text_offset": [0, 1],
    }
    choices = [
        {"index": 0, "text": "ab", "logprobs": scores, "finish_reason": "length"},
        {"index": 1, "text": "c" * 2000, "logprobs": None, "finish_reason": "stop"},
    ]
    answer = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": choices}
    entry = kept(answer, TEXT, 2)
    assert entry is not None
    assert not entry.ended
    found = assembled(TEXT, streamed(entry))
    assert found is not None
    assert found["choices"] == choices
    assert json.loads(whole(entry, DELIVERY))["choices"] == choices
    assert (
        json.loads(whole(entry, DELIVERY))["usage"]["prompt_tokens"] == 7
    )  # counted, where the server was silent


def test_vectors_come_back_as_they_were() -> None:
    data = [{"object": "embedding", "index": 0, "embedding": [0.1, -2.5e-8]}]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    answer = {"object": "list", "data": data, "model": "m", "usage": usage}
    entry = kept(answer, "createEmbedding")
    assert entry is not None
    assert json.loads(whole(entry, DELIVERY)) == {
        **answer,
        "model": "alias",
        "usage": {**usage, "cost": 0.0, "latency_ms": 1.5},
    }
    assert b"-2.5e-08" in whole(entry, DELIVERY)


@pytest.mark.parametrize(
    "answer",
    [
        chat(choice(reason=None)),
        chat(choice(reason="content_filter")),
        chat(choice(reason="error")),
        chat(choice(content="")),
        chat(choice(content=None)),
        chat(),
        chat(choice(), choice(1)),  # one was asked for
        chat(choice(1)),
        chat(choice(), error={"message": "no"}),
        {"error": {"message": "no"}},
        {"choices": "x"},
    ],
)
def test_what_is_not_a_whole_answer_is_not_kept(answer: dict[str, Any]) -> None:
    assert kept(answer) is None


def test_no_json_and_too_long_a_body_are_not_kept() -> None:
    for body in (b"", b"{", b"[1]", b"\xff", b'{"choices":' + b"[" * 100_000, b"x" * (5 << 20)):
        assert entry_of_whole(CHAT, body, USAGE, "m", 0.0, parts=1) is None


def delta(index: int = 0, reason: str | None = None, **fields: Any) -> bytes:
    part = {"index": index, "delta": fields, "finish_reason": reason}
    return event(
        {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [part]}
    )


def test_a_stream_with_calls_of_tools_becomes_a_whole_answer() -> None:
    events = (
        delta(role="assistant", content=None)
        + delta(
            tool_calls=[
                {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
            ]
        )
        + delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a"'}}])
        + delta(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}])
        + delta(reason="tool_calls")
        + DONE
    )
    found = assembled(CHAT, events)
    assert found is not None
    function = {"name": "f", "arguments": '{"a": 1}'}
    assert found["choices"][0]["message"]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": function}
    ]


@pytest.mark.parametrize(
    "events",
    [
        delta(content="a") + delta(reason="stop"),  # cut off before its end
        delta(content="a") + DONE + delta(content="b"),
        delta(content=[{"type": "text"}]) + DONE,
        delta(audio={"id": "1"}) + DONE,
        delta(tool_calls=[{"index": 3}]) + DONE,
        event({"error": {"message": "no"}}) + DONE,
        b"data: nonsense\n\n" + DONE,
        b"",
    ],
)
def test_a_stream_that_is_not_understood_to_its_end_makes_no_answer(events: bytes) -> None:
    assert assembled(CHAT, events) is None


def test_a_follower_sees_events_under_its_own_name_with_the_usage_it_asked_for() -> None:
    last = event({"id": "chatcmpl-1", "model": "m", "choices": [], "usage": {"prompt_tokens": 1}})
    events = delta(role="assistant") + delta(content="hi") + delta(reason="stop") + last + DONE
    renewed = Renewed(CHAT, delivery(include_usage=True))
    out = b"".join(renewed.feed(events[at : at + 7]) for at in range(0, len(events), 7))
    found = chunks(out + renewed.closing({"prompt_tokens": 7}))
    assert [chunk["id"] for chunk in found] == ["chatcmpl-new"] * 4
    assert [chunk["model"] for chunk in found] == ["alias"] * 4
    assert found[1]["choices"][0]["delta"] == {"content": "hi"}
    assert found[-1]["usage"] == {"prompt_tokens": 7, "latency_ms": 1.5}


def named(*events: dict[str, Any]) -> bytes:
    return b"".join(b"event: %b\n" % item["type"].encode() + event(item) for item in events)


MESSAGE = named(
    {"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 3}}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "msg_1 is an id"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"cost": 9, "latency_ms": 8}},
    {"type": "message_stop"},
)


def test_a_named_stream_is_kept_if_it_ended_and_replayed_under_another_id() -> None:
    assert ended_named("createMessage", MESSAGE) is True
    assert ended_named("createMessage", MESSAGE.replace(b"end_turn", b"refusal")) is None
    assert ended_named("createMessage", MESSAGE[: MESSAGE.rindex(b"event:")]) is None
    entry = Entry("createMessage", MESSAGE, Counted(3, 4), "m", 0.0, events=True)
    first, text, end, _ = (json.loads(payload) for payload in payloads(streamed(entry)))
    assert first["message"]["id"] == "msg_new"
    assert text["delta"]["text"] == "msg_1 is an id"
    assert end["usage"] == {"latency_ms": 1.5}


def test_a_response_is_kept_if_it_is_completed() -> None:
    def of(status: str) -> bytes:
        return named({"type": "response.output_text.delta", "delta": "x"}, {"type": f"response.{status}"})

    assert ended_named("createResponse", of("completed")) is True
    assert ended_named("createResponse", of("incomplete")) is None
    assert ended_named("createResponse", of("failed")) is None


@pytest.mark.parametrize(
    ("more", "whole"),
    [
        ({"delta": {"content": "late"}, "finish_reason": None}, False),
        ({"delta": {"tool_calls": [{"index": 0}]}, "finish_reason": None}, False),
        ({"delta": {}, "finish_reason": "length"}, False),
        ({"delta": {"role": "assistant", "content": ""}, "finish_reason": "stop"}, True),
    ],
)
def test_a_stream_that_goes_on_after_its_end_makes_no_answer(more: dict[str, Any], whole: bool) -> None:
    said = {"delta": {"content": "a"}, "finish_reason": None}
    ends = {"delta": {}, "finish_reason": "stop"}
    events = b"".join(event({"choices": [{"index": 0, **each}]}) for each in (said, ends, more))
    assert (assembled(CHAT, events + b"data: [DONE]\n\n") is not None) is whole
