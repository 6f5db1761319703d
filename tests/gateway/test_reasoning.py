"""Reasoning over HTTP, by a small model that repeats what it has seen itself do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server import Server

CHAT = "/v1/chat/completions"
TURN = [
    {"role": "user", "content": "Think, then answer."},
    {"role": "assistant", "content": "<think>\nIt is easy.\n</think>\n\nYes, of course."},
]
MESSAGES = [*TURN * 3, TURN[0]]
THOUGHT, ANSWER = "It is easy.", "Yes, of course."
# As models do it whose generation prompt opens the reasoning.
OPENING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


@pytest.fixture(scope="module")
def thinker(default_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("thinker")
    template = folder / "template.jinja"
    template.write_text(OPENING)
    running = Server(
        str(default_model), "--chat-template", str(template), "--max-model-len", "1024", log=folder / "log"
    )
    try:
        yield running
    finally:
        running.stop()


def ask(server: Server, **fields: Any) -> dict[str, Any]:
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 32, **fields}
    reply = server.post(CHAT, body)
    assert reply.status == 200, reply.body
    return dict(reply.json())


def streamed(server: Server, **fields: Any) -> list[dict[str, Any]]:
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 32, "stream": True, **fields}
    with server.streaming(CHAT, body) as chunks:
        *events, done = chunks
    assert done == "[DONE]"
    return events


def test_a_template_that_opens_the_reasoning_is_recognized(thinker: Server) -> None:
    answer = ask(thinker)
    [choice] = answer["choices"]
    assert choice["message"]["reasoning_content"] == choice["message"]["reasoning"] == THOUGHT
    assert choice["message"]["content"] == ANSWER
    assert choice["finish_reason"] == "stop"
    thought = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert 0 < thought < answer["usage"]["completion_tokens"]


def test_a_stream_sends_all_reasoning_before_the_answer(thinker: Server) -> None:
    chunks = streamed(thinker, stream_options={"include_usage": True})
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == THOUGHT
    assert "".join(delta.get("content", "") for delta in deltas) == ANSWER
    kinds = ["thought" if "reasoning_content" in delta else "text" for delta in deltas[1:-1]]
    assert kinds == sorted(kinds, reverse=True)
    assert all(delta["reasoning"] == delta["reasoning_content"] for delta in deltas if "reasoning" in delta)
    usage = chunks[-1]["usage"]
    assert usage["completion_tokens_details"] == ask(thinker)["usage"]["completion_tokens_details"]


def test_reasoning_that_is_not_wanted_is_left_out(thinker: Server) -> None:
    answer = ask(thinker, include_reasoning=False, logprobs=True)
    [choice] = answer["choices"]
    assert "reasoning_content" not in choice["message"]
    assert choice["message"]["content"] == ANSWER
    assert "".join(entry["token"] for entry in choice["logprobs"]["content"]).strip() == ANSWER
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
    chunks = streamed(thinker, include_reasoning=False, logprobs=True)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert not any("reasoning_content" in delta or "reasoning" in delta for delta in deltas)
    assert "".join(delta.get("content", "") for delta in deltas) == ANSWER
    entries = [
        entry
        for chunk in chunks
        for choice in chunk["choices"]
        for entry in (choice["logprobs"] or {"content": []})["content"]
    ]
    assert entries == choice["logprobs"]["content"]


def test_logprobs_have_every_token_of_reasoning_and_answer(thinker: Server) -> None:
    [choice] = ask(thinker, logprobs=True)["choices"]
    whole = [entry["token"] for entry in choice["logprobs"]["content"]]
    assert "".join(whole).replace("\n", "") == f"{THOUGHT}</think>{ANSWER}"
    pieces = [
        entry["token"]
        for chunk in streamed(thinker, logprobs=True)
        for each in chunk["choices"]
        for entry in (each["logprobs"] or {"content": []})["content"]
    ]
    assert pieces == whole


def test_limits_and_stops_end_reasoning_too(thinker: Server) -> None:
    [short] = ask(thinker, max_tokens=3)["choices"]
    assert (short["finish_reason"], short["message"]["content"]) == ("length", "")
    assert THOUGHT.startswith(short["message"]["reasoning_content"])
    [stopped] = ask(thinker, stop=["easy"])["choices"]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", "easy")
    assert stopped["message"] == {
        "role": "assistant",
        "content": "",
        "refusal": None,
        "reasoning_content": "It is",
        "reasoning": "It is",
    }


def test_reasoning_sent_back_reaches_the_template(thinker: Server) -> None:
    history = [
        TURN[0],
        {"role": "assistant", "content": "Yes.", "reasoning_content": "hm", "reasoning": "hm"},
    ]
    reply = thinker.post("/tokenize", {"messages": history, "return_token_strs": True})
    assert "(hm)" in "".join(reply.json()["token_strs"])
    ask(thinker, messages=[*history, TURN[0]])


def test_a_continued_message_is_answered_where_it_breaks_off(thinker: Server) -> None:
    def resumed(content: str) -> dict[str, Any]:
        messages = [*MESSAGES, {"role": "assistant", "content": content}]
        answer = ask(thinker, messages=messages, continue_final_message=True)
        return dict(answer["choices"][0]["message"])

    inside = resumed("<think>\nIt is")
    assert (inside["reasoning_content"], inside["content"]) == (" easy.", ANSWER)
    behind = resumed("<think>\nIt is easy.\n</think>\n\nYes,")
    assert "reasoning_content" not in behind
    assert behind["content"] == " of course."


def test_a_guided_answer_has_no_reasoning(thinker: Server) -> None:
    [choice] = ask(thinker, guided_choice=["Yes", "No"])["choices"]
    assert choice["message"]["content"] in ("Yes", "No")
    assert "reasoning_content" not in choice["message"]


def test_a_model_whose_template_has_no_marks_is_left_alone(server: Server) -> None:
    answer = ask(server)
    assert answer["choices"][0]["message"]["content"].startswith("<think>")
    assert "reasoning_content" not in answer["choices"][0]["message"]
    assert "completion_tokens_details" not in answer["usage"]
