"""Everything that is written to a client of /v1/messages whose server speaks chat completions."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from anthropic.types import Message
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidRequestError
from penstock.protocol import sse
from penstock.protocol.anthropic_face import MessagesFace
from penstock.protocol.errors import HTTPError, failure
from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.sse_reader import EventReader


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


STREAM = b"".join(
    [
        *(sse.event(chunk({"content": word})) for word in ("One", " two", " three")),
        sse.event(chunk({}, "stop")),
        sse.event(
            {"id": "c", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3, "cost": 0.5}}
        ),
        sse.DONE,
    ]
)


def test_a_whole_answer_keeps_what_it_cost() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "cost": 0.25, "latency_ms": 7.5}
    body = {"id": "c", "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": usage}
    message = Message.model_validate_json(
        MessagesFace("ours", "r").whole(json.dumps(body).encode()), strict=True
    )
    assert message.usage.output_tokens == 3
    assert message.usage.model_extra == {"cost": 0.25, "latency_ms": 7.5}


@given(st.lists(st.integers(0, len(STREAM)), max_size=10))
def test_any_cutting_of_the_chats_stream_gives_the_same_events(cuts: list[int]) -> None:
    face, places = MessagesFace("ours", "r"), [0, *sorted(cuts), len(STREAM)]
    out = b"".join(face.feed(STREAM[start:end]) for start, end in pairwise(places))
    events = [json.loads(event.data) for event in EventReader().feed(out)]
    assert "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta") == (
        "One two three"
    )
    assert events[-1] == {"type": "message_stop"}
    assert events[-2]["usage"]["cost"] == 0.5


def test_an_error_of_ours_inside_the_stream_becomes_one_of_anthropics() -> None:
    face = MessagesFace("ours", "req-9")
    error = HTTPError(503, "The engine is gone.", code="x", type="service_unavailable_error")
    out = face.feed(sse.event(chunk({"content": "One"})) + sse.error_event(error))
    last = EventReader().feed(out)[-1]
    assert last.name == b"error"
    assert json.loads(last.data) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "The engine is gone."},
        "request_id": "req-9",
    }
    assert EventReader().feed(face.failed(failure(error)))[0].name == b"error"


def test_a_stream_without_its_end_or_of_something_else_is_an_error() -> None:
    with pytest.raises(ForeignAnswerError):
        MessagesFace("ours", "r").feed(sse.event(chunk({"content": "One"})) + sse.DONE)
    with pytest.raises(ForeignAnswerError):
        MessagesFace("ours", "r").feed(b"data: nonsense\n\n")


def test_a_request_is_a_chat_for_whoever_reads_it() -> None:
    body = {"model": "ours", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    chat = json.loads(MessagesFace.chat(json.dumps(body).encode()))
    assert chat["stream_options"] == {"include_usage": True}
    with pytest.raises(InvalidRequestError, match="max_tokens is required"):
        MessagesFace.chat(b'{"messages": []}')
