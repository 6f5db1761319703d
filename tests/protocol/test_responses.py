"""What goes out: stream events, whole answers, errors, and the document that describes them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from penstock.errors import (
    ContextLengthError,
    EngineUnavailableError,
    InvalidRequestError,
    QueueFullError,
)
from penstock.protocol import sse
from penstock.protocol.chat_shape import ChatShape
from penstock.protocol.completion_shape import CompletionShape
from penstock.protocol.errors import HTTPError, failure
from penstock.protocol.openapi import OPERATIONS, document
from penstock.protocol.shapes import (
    Answered,
    Delta,
    Header,
    Position,
    ScoredToken,
    UsageCount,
)


def header(**fields: Any) -> Header:
    usage = UsageCount(prompt=3, completion=2, cached=1)
    return Header(id="x-1", created=7, model="m", system_fingerprint="fp", usage=usage, **fields)


def position(text: str = "a", offset: int = 0, logprob: float = -0.5) -> Position:
    return Position(
        ScoredToken(text, text.encode(), logprob),
        [ScoredToken("b", b"b", -0.1), ScoredToken("c", b"c", -9.0)],
        offset,
    )


def events(data: bytes) -> list[Any]:
    lines = data.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    return [line if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


def test_a_chat_stream_is_role_content_finish_and_done() -> None:
    shape = ChatShape(header())
    data = shape.opening(1) + shape.delta(Delta(0, "hi\n")) + shape.delta(Delta(0, "", finish_reason="stop"))
    *chunks, done = events(data + shape.closing())
    assert done == "data: [DONE]"
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""},
        {"content": "hi\n"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "stop"]
    assert all("usage" not in chunk and chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)


def test_the_last_text_and_the_finish_are_separate_chat_chunks() -> None:
    text, finish = events(ChatShape(header()).delta(Delta(0, "end", finish_reason="length")))
    assert text["choices"][0]["delta"] == {"content": "end"}
    assert text["choices"][0]["finish_reason"] is None
    assert finish["choices"][0]["delta"] == {}
    assert finish["choices"][0]["finish_reason"] == "length"


def test_every_choice_of_a_chat_stream_gets_its_role_chunk() -> None:
    chunks = events(ChatShape(header()).opening(3))
    assert [chunk["choices"][0]["index"] for chunk in chunks] == [0, 1, 2]


@pytest.mark.parametrize("shape", [ChatShape, CompletionShape])
def test_usage_comes_in_a_last_chunk_without_choices_only_if_asked_for(shape: Any) -> None:
    talking = shape(header(include_usage=True))
    first, usage, done = events(talking.delta(Delta(0, "a")) + talking.closing())
    assert first["usage"] is None
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    assert done == "data: [DONE]"
    silent = shape(header())
    first, done = events(silent.delta(Delta(0, "a")) + silent.closing())
    assert "usage" not in first


def test_running_usage_is_in_every_chunk() -> None:
    shape = CompletionShape(header(include_usage=True, running_usage=True))
    shape.header.usage.completion = 9
    [chunk] = events(shape.delta(Delta(0, "a")))
    assert chunk["usage"]["completion_tokens"] == 9


def test_a_completion_stream_has_text_and_finish_in_one_chunk() -> None:
    shape = CompletionShape(header())
    [chunk] = events(shape.delta(Delta(2, "a", finish_reason="stop", stop_reason="END")))
    assert chunk["choices"] == [
        {"index": 2, "text": "a", "logprobs": None, "finish_reason": "stop", "stop_reason": "END"}
    ]
    assert shape.opening(2) == b""


@pytest.mark.parametrize("shape", [ChatShape, CompletionShape])
def test_nothing_new_makes_no_event(shape: Any) -> None:
    assert shape(header()).delta(Delta(0, "")) == b""
    assert shape(header()).delta(Delta(0, "", positions=[])) == b""


def test_a_whole_chat_answer_reads_as_openais() -> None:
    answers = [Answered(0, "hi", [position()], "stop", None), Answered(1, "", None, "length", None)]
    answer = json.loads(json.dumps(ChatShape(header()).whole(answers), default=_plain))
    parsed = ChatCompletion.model_validate(answer, strict=True)
    assert parsed.choices[0].message.content == "hi"
    assert parsed.choices[0].logprobs is not None
    assert parsed.choices[1].logprobs is None
    [entry] = parsed.choices[0].logprobs.content or []
    assert (entry.token, entry.bytes, entry.logprob) == ("a", [97], -0.5)
    assert [(top.token, top.logprob) for top in entry.top_logprobs] == [("b", -0.1), ("c", -9.0)]


def test_a_whole_completion_reads_as_openais() -> None:
    answers = [Answered(0, "ad", [position(), position("d", 1)], "length", None)]
    answer = json.loads(json.dumps(CompletionShape(header()).whole(answers), default=_plain))
    parsed = Completion.model_validate(answer, strict=True)
    logprobs = parsed.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["a", "d"]
    assert logprobs.text_offset == [0, 1]
    assert logprobs.top_logprobs == [{"b": -0.1, "c": -9.0, "a": -0.5}, {"b": -0.1, "c": -9.0, "d": -0.5}]


def test_a_chat_delta_with_reasoning_and_text_is_two_chunks_in_order() -> None:
    thought, text = events(ChatShape(header()).delta(Delta(0, "yes", [position()], reasoning="hm")))
    assert thought["choices"][0]["delta"] == {"reasoning_content": "hm", "reasoning": "hm"}
    assert thought["choices"][0]["logprobs"] is None
    assert text["choices"][0]["delta"] == {"content": "yes"}
    assert len(text["choices"][0]["logprobs"]["content"]) == 1


def test_a_chat_delta_of_reasoning_alone_has_its_logprobs() -> None:
    [chunk] = events(ChatShape(header()).delta(Delta(0, "", [position()], reasoning="hm")))
    assert chunk["choices"][0]["delta"] == {"reasoning_content": "hm", "reasoning": "hm"}
    assert len(chunk["choices"][0]["logprobs"]["content"]) == 1


def test_tokens_that_are_not_text_yet_are_reported_if_asked_for() -> None:
    [chunk] = events(ChatShape(header()).delta(Delta(0, "", token_ids=[5])))
    assert (chunk["choices"][0]["delta"], chunk["choices"][0]["token_ids"]) == ({"content": ""}, [5])
    [chunk] = events(ChatShape(header()).delta(Delta(0, "", token_ids=[2], finish_reason="stop")))
    assert (chunk["choices"][0]["delta"], chunk["choices"][0]["token_ids"]) == ({}, [2])
    [chunk] = events(CompletionShape(header()).delta(Delta(0, "", prompt_token_ids=[1])))
    assert chunk["choices"][0]["prompt_token_ids"] == [1]
    opening = events(ChatShape(header()).opening(2, [1, 2]))
    assert [chunk.get("prompt_token_ids") for chunk in opening] == [[1, 2], None]


def test_reasoning_tokens_are_told_of_models_that_reason() -> None:
    assert "completion_tokens_details" not in json.dumps(_plain(UsageCount().message()))
    usage = _plain(UsageCount(reasoning=0, completion=3).message())
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_nothing_is_known_of_a_prompts_first_token() -> None:
    first = Position(ScoredToken("a", b"a", None), (), 0)
    answers = [Answered(0, "ad", [first, position("d", 1)], "length", None)]
    logprobs = _plain(CompletionShape(header()).whole(answers))["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"] == [None, -0.5]
    assert logprobs["top_logprobs"][0] is None


def test_an_impossible_token_has_a_finite_logprob() -> None:
    [chunk] = events(ChatShape(header()).delta(Delta(0, "a", [position(logprob=-math.inf)])))
    assert chunk["choices"][0]["logprobs"]["content"][0]["logprob"] == -9999.0


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "retry"),
    [
        (InvalidRequestError("Bad.", param="n"), 400, "invalid_request_error", None, None),
        (ContextLengthError("Long."), 400, "invalid_request_error", "context_length_exceeded", None),
        (QueueFullError("Full.", retry_after=2.5), 429, "rate_limit_error", "queue_full", ("3", "2500")),
        (QueueFullError("Full.", retry_after=0.01), 429, "rate_limit_error", "queue_full", ("1", "10")),
        (
            EngineUnavailableError("Dead."),
            503,
            "service_unavailable_error",
            "engine_unavailable",
            ("5", "5000"),
        ),
        (HTTPError(404, "No.", code="unknown_url"), 404, "invalid_request_error", "unknown_url", None),
        (ValueError("/etc/secret"), 500, "server_error", "internal_error", None),
    ],
)
def test_every_error_has_its_status_and_the_one_shape(
    error: Exception, status: int, kind: str, code: str | None, retry: tuple[str, str] | None
) -> None:
    shown = failure(error)
    body = json.loads(shown.encode())
    assert shown.status == status
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert (body["error"]["type"], body["error"]["code"]) == (kind, code)
    assert "/etc/secret" not in body["error"]["message"]
    if retry:
        assert (shown.headers["Retry-After"], shown.headers["retry-after-ms"]) == retry
    [event] = events(sse.error_event(error))
    assert event == body


def test_the_document_describes_every_operation_with_resolvable_references() -> None:
    content = json.loads(document("1.2.3"))
    assert content["openapi"] == "3.1.0"
    assert content["info"]["version"] == "1.2.3"
    for operation in OPERATIONS:
        described = content["paths"][operation.path][operation.method]
        assert described["summary"]
        assert {str(status) for status in (200, *operation.errors)} == set(described["responses"])

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if "$ref" in value else []
            return own + [name for item in value.values() for name in references(item)]
        return [name for item in value for name in references(item)] if isinstance(value, list) else []

    names = references(content)
    assert names
    assert all(
        name.removeprefix("#/components/schemas/") in content["components"]["schemas"] for name in names
    )


def test_the_document_says_of_every_known_field_what_becomes_of_it() -> None:
    schemas = json.loads(document("1"))["components"]["schemas"]
    chat = schemas["ChatCompletionRequest"]
    assert chat["additionalProperties"] is False
    assert "Ignored" in json.dumps(chat["properties"]["user"])
    assert chat["properties"]["tools"]["enum"] == [[], None]
    assert "Not supported" in chat["properties"]["tools"]["description"]
    assert {"minimum": 0, "maximum": 2}.items() <= chat["properties"]["temperature"]["anyOf"][0].items()


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)
