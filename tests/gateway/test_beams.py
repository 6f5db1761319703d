"""Beam search over HTTP: the same answers as the Python API's, and nothing left when a client leaves."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

from penstock import LLM, BeamSearchParams
from tests.server import Server, poll

TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"
HEADERS = b"Host: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
PROMPTS = ["The capital of France is", "Bees make"]


def search(server: Server, **fields: Any) -> dict[str, Any]:
    reply = server.post(TEXT, {"use_beam_search": True, "max_tokens": 8, **fields})
    assert reply.status == 200, reply.body
    return dict(reply.json())


def test_the_answers_are_those_of_the_python_api(server: Server, default_model: Path) -> None:
    answer = search(server, prompt=PROMPTS, n=3, return_token_ids=True, temperature=0)
    with LLM(str(default_model), max_model_len=256, kv_cache_memory=64 << 20) as llm:
        outputs = llm.beam_search(PROMPTS, BeamSearchParams(beam_width=3, max_tokens=8))
    expected = [choice for output in outputs for choice in output.outputs]
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert [choice["token_ids"] for choice in answer["choices"]] == [each.token_ids for each in expected]
    assert [choice["text"] for choice in answer["choices"]] == [each.text for each in expected]
    assert answer["usage"]["completion_tokens"] == sum(len(each.token_ids) for each in expected)


def test_more_beams_than_answers(server: Server) -> None:
    wide = search(server, prompt=PROMPTS[0], n=3)["choices"]
    best = search(server, prompt=PROMPTS[0], n=1, best_of=3)["choices"]
    assert [choice["text"] for choice in best] == [wide[0]["text"]]


def test_a_search_wider_than_the_engine_still_ends(default_model: Path, tmp_path: Path) -> None:
    small = Server(
        str(default_model), "--max-running", "1", "--max-waiting", "1", "--max-model-len", "64",
        log=tmp_path / "log",
    )  # fmt: skip
    try:
        assert len(search(small, prompt="Bees make", n=4, max_tokens=3)["choices"]) == 4
    finally:
        small.stop()


def test_a_conversation_can_be_searched(server: Server) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    body = {"messages": messages, "use_beam_search": True, "n": 2, "max_completion_tokens": 6}
    reply = server.post(CHAT, {**body, "length_penalty": 0.5, "early_stopping": True})
    assert reply.status == 200, reply.body
    first, second = reply.json()["choices"]
    assert "Paris" in first["message"]["content"]
    assert first["message"]["content"] != second["message"]["content"]


def test_a_client_that_leaves_takes_its_beams_with_it(server: Server) -> None:
    def idle() -> bool:
        held = server.metric("penstock_kv_blocks", state="held")
        return held == 0 and server.metric("vllm:num_requests_running") == 0

    poll(idle)
    body = {
        "prompt": "Once upon a time",
        "use_beam_search": True,
        "n": 4,
        "max_tokens": 4000,
        "ignore_eos": True,
    }
    data = json.dumps(body).encode()
    steps = server.metric("penstock_engine_steps_total")
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\n" + HEADERS % len(data) + data)
        poll(lambda: server.metric("penstock_engine_steps_total") > steps + 5)

    def stopped() -> bool:
        """Between two rounds of beams the engine is idle too, but not for so long."""
        before = server.metric("penstock_engine_steps_total")
        time.sleep(0.2)
        return idle() and server.metric("penstock_engine_steps_total") == before

    poll(stopped)
