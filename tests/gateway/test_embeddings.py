"""Embeddings over HTTP: right, in order, bounded, and refused with a sentence."""

from __future__ import annotations

import base64
import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.server import Server, poll

PATH = "/v1/embeddings"
WORDS = ("river", "water", "turbine", "mountain", "engine", "light", "stone", "bridge", "paper", "cloud")
TEXTS = [
    "The sky is blue.",
    "hi",
    "Ünïcode, 漢字 and emoji 🦀",
    "[CLS] this only looks like [SEP] a control token [MASK]",
    "A much longer text about rivers, dams and penstocks that carry water down to turbines. " * 9,
    *(" ".join(WORDS[(i * 5 + j) % len(WORDS)] for j in range(1 + i % 9)) for i in range(27)),
]


def embed(server: Server, value: Any, **fields: Any) -> list[Any]:
    reply = server.post(PATH, {"input": value, **fields})
    assert reply.status == 200, reply.body
    data = reply.json()["data"]
    assert [entry["index"] for entry in data] == list(range(len(data)))
    return [entry["embedding"] for entry in data]


def computed(server: Server) -> float:
    """Tokens so far; the engine's own first one shows a moment after the start."""
    poll(lambda: server.metric("vllm:prompt_tokens_total") > 0)
    return server.metric("vllm:prompt_tokens_total")


def refusal(server: Server, value: Any, **fields: Any) -> tuple[str, str | None]:
    reply = server.post(PATH, {"input": value, **fields})
    assert reply.status == 400, reply.body
    return reply.error["message"], reply.error["param"]


def test_vectors_equal_those_of_transformers(embedding_server: Server, embedding_model: Path) -> None:
    import torch
    from transformers import AutoTokenizer, BertModel

    tokenizer = AutoTokenizer.from_pretrained(embedding_model, split_special_tokens=True)
    reference = BertModel.from_pretrained(embedding_model, dtype=torch.float32).eval()
    found = np.array(embed(embedding_server, TEXTS))
    with torch.no_grad():
        # Padded and masked, as sentence-transformers computes them: another way to the same numbers.
        batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
        states, mask = reference(**batch).last_hidden_state, batch["attention_mask"][..., None].float()
        mean = (states * mask).sum(1) / mask.sum(1)
    expected = torch.nn.functional.normalize(mean).numpy()
    assert np.abs(found - expected).max() <= 1e-5


def test_a_vector_is_the_same_alone_and_in_company(embedding_server: Server) -> None:
    together = embed(embedding_server, TEXTS, encoding_format="base64")
    for number in (0, 1, 4, 9):
        assert embed(embedding_server, TEXTS[number], encoding_format="base64") == [together[number]]


def test_base64_is_little_endian_float32(embedding_server: Server) -> None:
    [packed] = embed(embedding_server, "hi", encoding_format="base64")
    [plain] = embed(embedding_server, "hi", encoding_format="float")
    assert np.frombuffer(base64.b64decode(packed), "<f4").tolist() == plain


def test_vectors_are_as_long_as_the_model_made_them_when_asked_to(embedding_server: Server) -> None:
    [raw], [normal] = embed(embedding_server, "hi", normalize=False), embed(embedding_server, "hi")
    length = np.linalg.norm(raw)
    assert abs(length - 1) > 0.1
    assert np.allclose(np.array(raw) / length, normal, atol=1e-6)


def test_special_tokens_in_a_text_are_only_text(embedding_server: Server) -> None:
    ids = embedding_server.post("/tokenize", {"prompt": "[MASK]"}).json()["tokens"]
    assert len(ids) > 3
    assert 103 not in ids


def test_the_frame_can_be_left_away(embedding_server: Server) -> None:
    ids = embedding_server.post("/tokenize", {"prompt": "blue sky"}).json()["tokens"]
    bare = embedding_server.post("/tokenize", {"prompt": "blue sky", "add_special_tokens": False}).json()[
        "tokens"
    ]
    assert ids[1:-1] == bare
    assert embed(embedding_server, "blue sky", add_special_tokens=False) == embed(embedding_server, bare)
    assert embed(embedding_server, "blue sky") == embed(embedding_server, ids)


def test_the_texts_of_a_request_share_steps(embedding_server: Server) -> None:
    before = embedding_server.metric("penstock_engine_steps_total")
    texts = [f"{WORDS[i % 10]} {i}" for i in range(600)]
    assert len(embed(embedding_server, texts)) == 600
    assert embedding_server.metric("penstock_engine_steps_total") - before < 300


def test_as_many_texts_as_the_limit_allows_are_taken(embedding_server: Server) -> None:
    first, *_, last = embed(embedding_server, [str(i % 10) for i in range(2048)], encoding_format="base64")
    assert [first] == embed(embedding_server, "0", encoding_format="base64")
    assert [last] == embed(embedding_server, "7", encoding_format="base64")


def test_too_many_texts_are_refused_with_both_numbers(embedding_server: Server) -> None:
    message, param = refusal(embedding_server, ["x"] * 10_000)
    assert message == "input has 10000 entries; a request takes at most 2048."
    assert param == "input"


BAD: list[tuple[Any, dict[str, Any], str, str]] = [
    ([], {}, "input is empty; send at least one text.", "input"),
    ("", {}, "input is empty; there must be something to read.", "input"),
    (["a", ""], {}, "input[1] is empty; there must be something to read.", "input[1]"),
    ([[1], []], {}, "input[1] has no tokens; there must be something to read.", "input[1]"),
    (["a", 7], {}, "input mixes kinds: entry 1 is not like the first one.", "input[1]"),
    ([7, "a"], {}, "input mixes kinds: entry 1 is not like the first one.", "input[1]"),
    ([[7], "a"], {}, "input mixes kinds", "input[1]"),
    ([5, 30522], {}, "input has the token id 30522 at position 1, but there are only 30522 tokens.", "input"),
    ([[5], [99999]], {}, "input[1] has the token id 99999 at position 0", "input[1]"),
    ([5, -1], {}, "must be at least 0", "input[1]"),
    (["a", "word " * 300], {}, "input[1] has 302 tokens, but the model reads at most 256.", "input[1]"),
    ([[5] * 257], {}, "input[0] has 257 tokens, but the model reads at most 256.", "input[0]"),
    (5, {}, "input must be a string or an array, got an integer.", "input"),
    ("a", {"dimensions": 385}, "dimensions must be between 1 and the model's 384, got 385.", "dimensions"),
    ("a", {"dimensions": 0}, "dimensions must be between 1 and the model's 384, got 0.", "dimensions"),
    (
        "a",
        {"encoding_format": "bytes"},
        "encoding_format does not take the value 'bytes'.",
        "encoding_format",
    ),
    ("a", {"truncate_prompt_tokens": 0}, "must be at least 1, or -1, got 0", "truncate_prompt_tokens"),
    (
        "a b",
        {"truncate_prompt_tokens": 2},
        "input with what must stand around it needs at least 3",
        "truncate_prompt_tokens",
    ),
    ("a", {"priority": 2000}, "priority must be between -1000 and 1000, got 2000.", "priority"),
    (
        "a",
        {"truncation_side": "left"},
        "truncation_side is not supported. A text's beginning is kept.",
        "truncation_side",
    ),
    ("a", {"messages": [{"role": "user", "content": "a"}]}, "messages is not supported.", "messages"),
    ("a", {"task": "query"}, "Unknown field 'task'", "task"),
]


@pytest.mark.parametrize(("value", "fields", "message", "param"), BAD)
def test_what_is_wrong_is_said_with_its_place(
    embedding_server: Server, value: Any, fields: dict[str, Any], message: str, param: str
) -> None:
    before = computed(embedding_server)
    found, where = refusal(embedding_server, value, **fields)
    assert message in found
    assert where == param
    assert computed(embedding_server) == before


def test_a_text_that_is_too_long_is_cut_only_when_asked_to(embedding_server: Server) -> None:
    long = "word " * 300
    assert embedding_server.post(PATH, {"input": long}).error["code"] == "context_length_exceeded"
    assert embed(embedding_server, long, truncate_prompt_tokens=-1) == embed(embedding_server, "word " * 254)
    assert embed(embedding_server, long, truncate_prompt_tokens=10) == embed(embedding_server, "word " * 8)
    assert embed(embedding_server, [7] * 400, truncate_prompt_tokens=-1) == embed(embedding_server, [7] * 256)
    assert embed(embedding_server, "word", truncate_prompt_tokens=10) == embed(embedding_server, "word")


def test_a_client_that_leaves_takes_its_texts_with_it(embedding_server: Server) -> None:
    poll(lambda: embedding_server.metric("vllm:num_requests_waiting") == 0)
    before = computed(embedding_server)
    aborted = embedding_server.metric("vllm:request_success_total", finished_reason="abort")
    ids = [[7] * 250 for _ in range(1500)]  # minutes of work
    body = json.dumps({"input": ids}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((embedding_server.host, embedding_server.port)) as connection:
        connection.sendall(head.encode() + body)
        poll(lambda: computed(embedding_server) > before)
    poll(lambda: embedding_server.metric("vllm:num_requests_waiting") == 0)
    counted = embedding_server.metric("vllm:request_success_total", finished_reason="abort")
    assert 0 < counted - aborted <= 1500
    assert computed(embedding_server) - before < 250 * 1500
    assert embed(embedding_server, "still there")


def test_texts_count_as_requests_that_ended(embedding_server: Server) -> None:
    before = embedding_server.metric("vllm:request_success_total", finished_reason="stop")
    timed = embedding_server.metric("vllm:e2e_request_latency_seconds_count")
    embed(embedding_server, ["one", "two", "three"])
    assert embedding_server.metric("vllm:request_success_total", finished_reason="stop") == before + 3
    assert embedding_server.metric("vllm:e2e_request_latency_seconds_count") == timed + 3


def test_an_idle_encoder_proves_itself_ready(embedding_server: Server) -> None:
    assert embedding_server.get("/ready").json() == {"status": "ready"}


def test_the_banner_shows_a_request_that_works(embedding_server: Server) -> None:
    assert "vectors of 384" in "".join(embedding_server.output)
    assert embed(embedding_server, ["A river.", "A stream."], model="all-MiniLM-L6-v2")
