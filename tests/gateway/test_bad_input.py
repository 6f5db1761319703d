"""Bad input over the wire: always a 4xx in the error shape, never harm to the server."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.protocol.test_bad_requests import (
    BODIES,
    CHAT_MISTAKES,
    COMPLETION_MISTAKES,
    SHARED,
    TOGETHER,
    chat,
    completion,
)
from tests.server import Server

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
LIMIT = 8 * 1024 * 1024


@pytest.fixture(autouse=True, scope="module")
def _unharmed(server: Server) -> Iterator[None]:
    yield
    assert server.post(TEXT, {"prompt": "hi", "max_tokens": 2}).status == 200
    assert server.metric("vllm:num_requests_running") == 0
    assert server.metric("penstock_http_requests_total", status="500") == 0


def without_model(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "model"}


def test_every_known_mistake_is_a_400_that_names_its_field(server: Server) -> None:
    for path, make, mistakes in ((CHAT, chat, CHAT_MISTAKES), (TEXT, completion, COMPLETION_MISTAKES)):
        shared = [({re.split(r"[\[.]", field)[0]: value}, field) for field, value in SHARED]
        cases = [*mistakes, *shared, *TOGETHER]
        for fields, param in cases:
            if fields in ({"prompt": [1000]}, {"prompt": [[1], [1000]]}):
                continue  # a good id of the real vocabulary
            if fields in (
                {"stop_token_ids": [1000]},
                {"allowed_token_ids": [1000]},
                {"logit_bias": {"1000": 1}},
            ):
                continue
            reply = server.post(path, {**without_model(make()), **fields})
            assert reply.status == 400, (fields, reply.body)
            assert reply.error["param"] == param
            assert reply.error["type"] == "invalid_request_error"


def test_what_the_template_cannot_take_is_a_400_that_names_its_field(server: Server) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "[1]"}}
    for fields, param in (
        ({"messages": [{"role": "assistant", "tool_calls": [call]}]},
         "messages[0].tool_calls[0].function.arguments"),
        ({"add_generation_prompt": True, "continue_final_message": True}, "continue_final_message"),
    ):  # fmt: skip
        reply = server.post(CHAT, {**without_model(chat()), **fields})
        assert (reply.status, reply.error["param"]) == (400, param)


def test_bodies_that_are_not_json_are_a_400(server: Server) -> None:
    for path in (CHAT, TEXT, "/tokenize", "/detokenize"):
        for body, _ in BODIES:
            reply = server.post(path, body)
            assert reply.status == 400, (path, body[:50], reply.body)
            assert reply.error["message"]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (TEXT, {"prompt": [49152]}, "prompt"),
        (TEXT, {"prompt": [[1], [2, 49152]]}, "prompt[1]"),
        (TEXT, {"prompt": "hi", "stop_token_ids": [49152]}, "stop_token_ids"),
        (TEXT, {"prompt": "hi", "logit_bias": {"49152": 1}}, "logit_bias"),
        (CHAT, {"messages": [{"role": "user", "content": "hi"}], "logit_bias": {"49152": 1}}, "logit_bias"),
        ("/detokenize", {"tokens": [1, 49152]}, "tokens[1]"),
    ],
)
def test_ids_outside_the_vocabulary_are_refused(server: Server, path: str, fields: Any, param: str) -> None:
    reply = server.post(path, fields)
    assert reply.status == 400
    assert reply.error["param"] == param
    assert "49152" in reply.error["message"]


@pytest.mark.parametrize("name", ["gpt-5", "", "smollm2-135m-instruct", "x" * 1000, "../.."])
@pytest.mark.parametrize("path", [CHAT, TEXT, "/tokenize", "/detokenize"])
def test_an_unknown_model_is_a_404(server: Server, path: str, name: str) -> None:
    body = {CHAT: chat(), TEXT: completion(), "/tokenize": {"prompt": "a"}, "/detokenize": {"tokens": [1]}}[
        path
    ]
    reply = server.post(path, {**body, "model": name})
    assert reply.status == 404
    assert (reply.error["code"], reply.error["param"]) == ("model_not_found", "model")


def test_a_prompt_longer_than_the_context_says_so(server: Server) -> None:
    for path, fields, param in (
        (TEXT, {"prompt": [1] * 8192}, "prompt"),
        (TEXT, {"prompt": "word " * 9000}, "prompt"),
        (TEXT, {"prompt": ["a", "word " * 9000]}, "prompt[1]"),
        (CHAT, {"messages": [{"role": "user", "content": "word " * 9000}]}, "messages"),
        # Known to be too long without tokenizing it, which would take seconds.
        (TEXT, {"prompt": "word " * 1_500_000}, "prompt"),
        (CHAT, {"messages": [{"role": "user", "content": "<|im_end|>" * 700_000}]}, "messages"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 7_000_000}]}]},
            "messages",
        ),
        (TEXT, {"prompt": [1] * 2_000_000}, "prompt"),
    ):
        reply = server.post(path, fields)
        assert reply.status == 400
        assert (reply.error["code"], reply.error["param"]) == ("context_length_exceeded", param)
        assert "8192" in reply.error["message"]


def test_asking_for_more_than_the_context_leaves_names_all_three_numbers(server: Server) -> None:
    reply = server.post(TEXT, {"prompt": [1] * 8000, "max_tokens": 193})
    assert reply.status == 400
    assert (reply.error["code"], reply.error["param"]) == ("context_length_exceeded", "max_tokens")
    assert all(number in reply.error["message"] for number in ("8000", "193", "8192"))
    message = {"role": "user", "content": "hi"}
    reply = server.post(CHAT, {"messages": [message], "max_completion_tokens": 8192})
    assert reply.error["param"] == "max_completion_tokens"


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"],
)
def test_another_content_type_is_a_415(server: Server, kind: str) -> None:
    reply = server.post(CHAT, json.dumps(chat()).encode(), {"Content-Type": kind})
    assert reply.status == 415
    assert reply.error["code"] == "unsupported_media_type"


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_json_is_recognized_with_parameters_and_in_any_case(server: Server, kind: str) -> None:
    assert server.post("/tokenize", b'{"prompt": "a"}', {"Content-Type": kind}).status == 200


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd", "gzip, identity", "identity", "x"])
def test_a_content_encoding_is_a_415(server: Server, encoding: str) -> None:
    reply = server.post("/tokenize", b'{"prompt": "a"}', {"Content-Encoding": encoding})
    assert reply.status == 415
    assert reply.error["code"] == "unsupported_content_encoding"


def padded(size: int) -> bytes:
    body = b'{"prompt": "a"}'
    return body + b" " * (size - len(body))


def test_a_body_at_the_limit_is_read_and_one_above_it_is_a_413(server: Server) -> None:
    assert server.post("/tokenize", padded(LIMIT)).status == 200
    reply = server.post("/tokenize", padded(LIMIT + 1))
    assert reply.status == 413
    assert reply.error["code"] == "body_too_large"


def test_a_body_without_a_length_is_counted_while_it_comes(server: Server) -> None:
    def chunks(size: int) -> bytes:
        body = padded(size)
        parts = [body[at : at + 60_000] for at in range(0, size, 60_000)]
        return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"

    head = (
        b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    assert server.raw(head + chunks(1000)).startswith(b"HTTP/1.1 200 ")
    assert server.raw(head + chunks(LIMIT + 1)).startswith(b"HTTP/1.1 413 ")


def test_a_length_that_lies_upwards_is_a_413_before_anything_is_read(server: Server) -> None:
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        connection.sendall(
            b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999999999999\r\n\r\n{"
        )
        assert connection.recv(65536).startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 "))


def test_both_lengths_at_once_are_refused(server: Server) -> None:
    reply = server.raw(
        b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 15\r\nTransfer-Encoding: chunked\r\n\r\n" + padded(15)
    )
    assert reply.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nContent-Length: abc\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_what_is_not_http_gets_a_400_in_the_error_shape(server: Server, request_bytes: bytes) -> None:
    head, _, body = server.raw(request_bytes).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "invalid_http"


def test_large_headers_are_a_431_whether_they_end_or_not(server: Server) -> None:
    many = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 100) for number in range(700))
    for data in (
        b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + many + b"\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Endless: " + b"y" * 200_000,
        b"GET /" + b"y" * 200_000,
    ):
        head, _, body = server.raw(data).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431 "), head
        assert json.loads(body)["error"]["code"] == "headers_too_large"


def test_a_connection_serves_on_after_a_refusal(server: Server) -> None:
    import http.client

    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    for status, path in ((404, "/nowhere"), (405, "/tokenize"), (200, "/health")):
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        assert response.status == status
    connection.request("POST", "/tokenize", b"{", {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    assert response.status == 400
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    connection.close()
