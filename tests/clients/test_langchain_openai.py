"""LangChain's OpenAI package, in an environment of its own, against a server started as a user would."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.environments import ran
from tests.server import Server


@pytest.fixture(scope="module")
def session(server: Server, model_name: str) -> dict[str, Any]:
    """Everything the script did, done once: importing the client takes longer than using it."""
    return ran("langchain-openai", "langchain_session.py", server.url, model_name)


def test_an_answer_comes_with_its_usage(session: dict[str, Any], model_name: str) -> None:
    answer = session["invoke"]
    assert answer["content"]
    assert (answer["finish_reason"], answer["model"]) == ("length", model_name)
    usage = answer["usage"]
    assert usage["output_tokens"] == 12
    assert usage["total_tokens"] == usage["input_tokens"] + 12


def test_a_stream_adds_up_to_the_whole_answer(session: dict[str, Any]) -> None:
    stream = session["stream"]
    assert stream["content"] == session["invoke"]["content"] == "".join(stream["pieces"])
    assert len([piece for piece in stream["pieces"] if piece]) > 3
    assert stream["finish_reason"] == "length"
    assert stream["usage"]["output_tokens"] == 12


def test_a_batch_is_answered_in_its_order(session: dict[str, Any]) -> None:
    answers = session["batch"]
    assert len({answer["content"] for answer in answers}) == 3
    assert answers[2]["content"] == session["invoke"]["content"]


def test_the_async_methods_give_the_same(session: dict[str, Any]) -> None:
    found = session["async"]
    assert found["invoke"]["content"] == session["invoke"]["content"]
    assert found["stream"]["content"] == session["stream"]["content"]
    assert [answer["content"] for answer in found["batch"]] == [
        answer["content"] for answer in session["batch"][:2]
    ]


def test_a_conversation_and_a_chain_go_through(session: dict[str, Any]) -> None:
    assert session["conversation"]["usage"]["input_tokens"] > session["invoke"]["usage"]["input_tokens"]
    assert session["chain"]


def test_a_stop_word_ends_the_answer_before_it(session: dict[str, Any]) -> None:
    assert "red" in session["invoke"]["content"].lower(), "the question no longer brings the stop word out"
    assert session["stop"]["finish_reason"] == "stop"
    assert session["invoke"]["content"].startswith(session["stop"]["content"])
    assert "red" not in session["stop"]["content"].lower()


def test_log_probabilities_are_there_for_every_token(session: dict[str, Any]) -> None:
    entries = session["logprobs"]
    assert "".join(entry["token"] for entry in entries) == session["invoke"]["content"]
    assert all(entry["logprob"] <= 0 and len(entry["top_logprobs"]) == 3 for entry in entries)


def test_several_choices_are_generated(session: dict[str, Any]) -> None:
    assert len(session["choices"]) == 3
    assert len(set(session["choices"])) > 1


def test_plain_completions_whole_and_streamed(session: dict[str, Any]) -> None:
    assert "Paris" in session["completion"]
    assert "".join(session["completion stream"]) == session["completion"]


@pytest.mark.parametrize(
    ("what", "status", "kind", "said"),
    [
        ("unknown model", 404, "openai.NotFoundError", "The model 'gpt-5' is not served here"),
        ("bad temperature", 400, "openai.BadRequestError", "temperature must be between 0 and 2, got 9"),
        ("too long", 400, "openai.BadRequestError", "the model's context is 8192 tokens"),
        ("too long in a stream", 400, "openai.BadRequestError", "the model's context is 8192 tokens"),
        ("structured output", 400, "openai.BadRequestError", "response_format is not supported"),
        ("tools", 400, "openai.BadRequestError", "tools is not supported"),
    ],
)
def test_an_error_keeps_its_kind_and_its_sentence(
    session: dict[str, Any], what: str, status: int, kind: str, said: str
) -> None:
    error = session[what]
    assert kind in error["raised"]
    assert error["status_code"] == status
    assert said in error["message"]


def test_a_context_that_is_too_long_has_its_code(session: dict[str, Any]) -> None:
    assert session["too long"]["code"] == "context_length_exceeded"
    assert session["unknown model"]["code"] == "model_not_found"
    assert session["bad temperature"]["param"] == "temperature"
