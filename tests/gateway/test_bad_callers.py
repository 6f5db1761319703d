"""Callers that mean no good, at a door with several models: always a 4xx, never harm, never obeyed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.door import CHAT, HI, TEXT, Door, behind, chat
from tests.server import Reply
from tests.servers.gated import OpenAIServer
from tests.servers.http import in_a_thread

PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
LOOK = [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, PIXEL]}]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[OpenAIServer]:
    """A server that nobody has configured."""
    with in_a_thread(OpenAIServer("elsewhere")) as server:
        yield server


@pytest.fixture(scope="module")
def door(upstream: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    config = {
        "models": {
            "chat": behind(upstream.url, backend={"api_key": "upstreams-own"}),
            "sees": behind(upstream.url, backend={"vision": True}),
            "texts": {"backends": [{"kind": "tgi", "url": upstream.url, "model": "upstream"}]},
            "llama": {"backends": [{"kind": "llamacpp", "url": upstream.url}], "max_tokens": 5},
        }
    }
    running = Door(tmp_path_factory.mktemp("callers"), config, "--log-level", "debug")
    yield running
    assert running.ask("chat").status == 200
    assert running.metric("penstock_http_requests_total", status="500") == 0
    log = running.log()
    running.stop()
    assert "Traceback" not in log
    assert "upstreams-own" not in log


def refused(reply: Reply, status: int, **expected: Any) -> None:
    assert reply.status == status, reply.body
    assert len(reply.body) < 2000
    assert {name: reply.error[name] for name in expected} == expected


# ------------------------------------------------------ who is asked, and as whom


@pytest.mark.parametrize("field", ["api_base", "base_url", "api_key"])
@pytest.mark.parametrize("path", [CHAT, TEXT, "/v1/embeddings", "/v1/responses", "/v1/messages"])
def test_a_body_does_not_say_whom_to_ask(
    door: Door, upstream: OpenAIServer, elsewhere: OpenAIServer, path: str, field: str
) -> None:
    before = len(upstream.requests), len(elsewhere.requests)
    body = {"model": "chat", **HI, "prompt": "hi", "input": "hi", "max_tokens": 1, field: elsewhere.url}
    reply = door.post(path, body)
    assert reply.status == 400, reply.body
    assert field in reply.body.decode()
    assert len(elsewhere.requests) == before[1]
    assert all(request.method == "GET" for request in upstream.requests[before[0] :])


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Api-Base": "{url}"}, {"X-Forwarded-Host": "{host}"}, {"Host": "{host}"}, {"X-Host": "{host}"},
        {"Forwarded": "host={host}"}, {"X-Upstream": "{url}"}, {"OpenAI-Organization": "org-1"},
    ],
)  # fmt: skip
def test_nor_does_a_header(
    door: Door, upstream: OpenAIServer, elsewhere: OpenAIServer, headers: dict[str, str]
) -> None:
    host = elsewhere.url.removeprefix("http://")
    sent = {name: value.format(url=elsewhere.url, host=host) for name, value in headers.items()}
    before = len(elsewhere.requests)
    assert door.post(CHAT, {"model": "chat", **HI}, sent).status == 200
    assert len(elsewhere.requests) == before
    got = [request for request in list(upstream.requests) if request.method == "POST"][-1].headers
    assert not {name.lower() for name in headers} & set(got) - {"host"}
    assert got["host"] == upstream.url.removeprefix("http://")


def test_a_callers_key_does_not_go_on(door: Door, upstream: OpenAIServer) -> None:
    headers = {"Authorization": "Bearer callers-own", "x-api-key": "callers-own", "Cookie": "a=b"}
    assert door.post(CHAT, {"model": "chat", **HI}, headers).status == 200
    got = [request for request in list(upstream.requests) if request.method == "POST"][-1]
    assert got.headers["authorization"] == "Bearer upstreams-own"
    assert "callers-own" not in str(got)
    assert "cookie" not in got.headers


# ----------------------------------------------------------------- which model


def test_the_model_must_be_one_that_is_served(door: Door) -> None:
    for name in (
        "nothing",
        "",
        " chat",
        "CHAT",
        "../chat",
        "chat\0",
        "upstream",
        "x" * 100_000,
        "\u202echat",
    ):
        refused(door.ask(name), 404, code="model_not_found", param="model")
    refused(door.ask(None), 400, param="model")
    assert "chat, sees, texts, llama" in door.ask(None).error["message"]


def test_what_a_models_servers_do_not_offer_is_refused(door: Door, upstream: OpenAIServer) -> None:
    before = len(upstream.bodies)
    for path, body in (
        ("/v1/embeddings", {"input": "hi"}),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}),
        ("/v1/score", {"text_1": "a", "text_2": "b"}),
        ("/v1/responses", {"input": "hi"}),
        ("/tokenize", {"prompt": "hi"}),
        ("/detokenize", {"tokens": [1]}),
    ):
        refused(door.post(path, {"model": "texts", **body}), 400, param="model", code="unsupported_task")
    assert len(upstream.bodies) == before
    assert door.post("/v1/embeddings", {"model": "chat", "input": "hi"}).status == 200


@pytest.mark.parametrize("model", ["llama", "chat"])
def test_names_of_limits_that_only_some_servers_know_do_not_go_on(
    door: Door, upstream: OpenAIServer, model: str
) -> None:
    """llama.cpp obeys these over max_tokens and n, and anything may stand behind openai_compatible."""
    assert door.ask(model, n_predict=100_000, n_cmpl=50, max_tokens=4).status == 200
    sent = upstream.bodies[-1]
    assert not {"n_predict", "n_cmpl"} & set(sent)
    assert sent["max_tokens"] == 4


def test_images_go_to_backends_that_see_and_nowhere_else(door: Door, upstream: OpenAIServer) -> None:
    before = len(upstream.bodies)
    refused(door.post(CHAT, {"model": "chat", "messages": LOOK}), 400, param="messages")
    assert len(upstream.bodies) == before
    assert door.post(CHAT, {"model": "sees", "messages": LOOK}).status == 200
    assert upstream.bodies[-1]["messages"] == LOOK
    said = chat('a text about "image_url"', model="chat")
    assert door.post(CHAT, said).status == 200


# ------------------------------------------------------------------- bodies


WRONG = [
    ("model", 1), ("model", {}), ("model", []), ("stream", "true"), ("stream", 1),
    ("stream_options", "usage"), ("n", 0), ("n", -1), ("n", 10**6), ("n", 10**40),
    ("n", 1.5), ("n", "1"), ("n", True), ("n", [1]),
    ("max_tokens", -1), ("max_tokens", -10**6), ("max_tokens", 10**40), ("max_tokens", "8"),
    ("max_tokens", 0.5),
    ("max_completion_tokens", -1), ("max_completion_tokens", True), ("service_tier", 5), ("service_tier", {}),
    ("user", 1), ("user", ["a"]), ("prompt_cache_key", 1), ("cache_salt", {"a": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_a_wrong_value_in_a_field_that_matters_here_is_named(door: Door, field: str, value: Any) -> None:
    for model in ("chat", "texts"):
        extra = {"stream": True} if field == "stream_options" else {}
        reply = door.post(CHAT, {"model": model, **HI, **extra, field: value})
        refused(reply, 400, param=field, type="invalid_request_error")


def test_nulls_are_as_if_they_were_not_there(door: Door) -> None:
    fields = dict.fromkeys(
        ("n", "max_tokens", "stream", "stream_options", "service_tier", "user", "cache_salt")
    )
    assert door.ask("chat", **fields).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"NaN", b'"{}"', b'{"model":"chat","messages":[],"temperature":NaN}',
        b'{"model":"chat","n":NaN}', b'{"model":"chat","n":Infinity}', b'{"model":"chat","n":1e400}',
        b'{"model":"chat","max_tokens":-Infinity}', b'{"model":"chat"}{"model":"chat"}',
        b'{"model":"chat","x":"\xff\xfe"}', b'{"model":"\\ud800"}', b"\xff\xfe{\0}\0",
        b'{"model":"chat","messages":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"model":"sees","messages":"\\ud800","x":"image_url"}',
        b'{"model":"chat","messages":[{"content":["\\ud800"]}],"type":"image_url"}',
        b'{"model":"chat","a":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(door: Door, body: bytes) -> None:
    for path in (CHAT, TEXT, "/v1/embeddings", "/v1/responses"):
        reply = door.post(path, body)
        assert reply.status in (400, 404), (path, reply.body)
        assert reply.error["message"].endswith(".")


def test_of_a_field_that_comes_twice_both_read_the_same(door: Door, upstream: OpenAIServer) -> None:
    body = b'{"model":"nothing","model":"chat","max_tokens":9,"messages":[],"max_tokens":2}'
    reply = door.post(CHAT, body)
    assert reply.status == 200
    assert reply.json()["usage"]["completion_tokens"] == 2
    assert upstream.bodies[-1]["model"] == "upstream"
    refused(door.post(CHAT, b'{"model":"chat","messages":[],"model":"nothing"}'), 404, param="model")


# ------------------------------------------------------------------ headers


def raw(door: Door, head: bytes, body: bytes = b"") -> tuple[int, Any]:
    reply = door.raw(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    first, _, content = reply.partition(b"\r\n\r\n")
    return int(first.split(b" ")[1]), json.loads(content)


def test_floods_of_headers_are_cut_off(door: Door) -> None:
    start = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    for flood in (
        b"".join(b"X-%d: y\r\n" % number for number in range(20_000)),
        b"Authorization: Bearer " + b"k" * 1_000_000 + b"\r\n",
        b"x-api-key: " + b"k" * 1_000_000 + b"\r\n",
        b"x-penstock-class: " + b"k" * 70_000 + b"\r\n",
        b"X-" + b"n" * 100_000 + b": 1\r\n",
    ):
        status, content = raw(door, start + flood, b'{"model":"chat"}')
        assert (status, content["error"]["code"]) == (431, "headers_too_large")


def test_headers_within_the_limit_that_make_no_sense_do_no_harm(door: Door) -> None:
    headers = {
        "Authorization": "Bearer " + "k" * 20_000,
        "X-Request-Id": "spaces are not\there",
        "traceparent": "nonsense",
        "x-session-id": "s" * 10_000,
        "Accept": "text/nothing",
        "Expect": "200-ok",
    }
    reply = door.post(CHAT, {"model": "chat", **HI}, headers)
    assert reply.status == 200
    assert reply.headers["x-request-id"] != headers["X-Request-Id"]


def test_a_log_has_no_lines_that_a_caller_wrote(door: Door) -> None:
    door.post(CHAT, {"model": "a\n2026 ERROR forged", **HI}, {"X-Request-Id": "a%0aERROR"})
    door.post(CHAT, {"model": "chat", "messages": "x\nforged: line"})
    assert not any(line.startswith(("2026 ERROR forged", "forged")) for line in door.log().splitlines())
    assert Path(door._log.name).stat().st_size < 5_000_000
