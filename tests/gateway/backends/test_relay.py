"""Relayed answers that come whole: what is sent on, what comes back, what is billed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.config import BackendConfig, HealthConfig, ModelConfig
from penstock.errors import ConfigError, InvalidRequestError
from penstock.gateway.accounts import Caller
from penstock.gateway.backends import BackendError
from penstock.gateway.backends.presets import PRESETS
from penstock.gateway.backends.relay import RelayBackend
from penstock.protocol.errors import HTTPError
from tests.gateway.backends.asking import Got, ask, backend_of, exchange_of
from tests.gateway.upstream.raw import Handler, RawServer, always, once, plain

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "total_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 4},
}
CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "upstream-name",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": USAGE,
}
MESSAGES = [{"role": "user", "content": "hello"}]


def answering(content: Any, **headers: str) -> Handler:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return always(plain(body, **{"content_type": "application/json", **headers}))


async def relay(handler: Handler, body: dict[str, Any] | None = None, **more: Any) -> tuple[Got, RawServer]:
    asked = {key: more.pop(key) for key in ("asks", "headers", "caller") if key in more}
    async with RawServer(handler) as server:
        backend = backend_of(server.url, **more)
        try:
            return await ask(backend, body or {"messages": MESSAGES}, **asked), server
        finally:
            await backend.close()


async def failing(handler: Handler, **more: Any) -> HTTPError:
    with pytest.raises(HTTPError) as caught:
        await relay(handler, **more)
    return caught.value


async def test_an_answer_comes_back_under_the_clients_name_with_its_usage_billed() -> None:
    got, server = await relay(answering(CHAT))
    assert got.status == 200
    answer = got.json()
    assert answer["model"] == "mine"
    assert answer["choices"] == CHAT["choices"]
    assert answer["usage"]["completion_tokens"] == 3
    assert (got.delivered.prompt, got.delivered.completion, got.delivered.cached) == (7, 3, 4)
    assert json.loads(server.requests[0].body) == {"model": "upstream-name", "messages": MESSAGES}


async def test_only_the_answers_own_model_is_renamed() -> None:
    said = 'the "model":"upstream-name" is upstream-name'
    chat = {**CHAT, "choices": [{"index": 0, "message": {"content": said}}]}
    got, _ = await relay(answering(chat))
    assert got.json()["choices"][0]["message"]["content"] == said


async def test_fields_go_on_byte_for_byte_when_nothing_must_change() -> None:
    async with RawServer(answering(CHAT)) as server:
        backend = backend_of(server.url, model="mine")
        got = await ask(backend, {"messages": MESSAGES, "temperature": 0.70})
        await backend.close()
    assert got.exchange is not None
    assert server.requests[0].body == got.exchange.inquiry.encode({})


async def test_the_client_keeps_its_key_and_cookies_and_the_server_gets_ours() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    client = {
        "Authorization": "Bearer client-key",
        "X-Api-Key": "client-key",
        "Cookie": "session=1",
        "Connection": "close",
        "X-Forwarded-For": "1.2.3.4",
        "X-Request-Id": "req-7",
        "Traceparent": trace,
        "Tracestate": "a=b",
        "Host": "evil",
    }
    _, server = await relay(answering(CHAT), headers=client, api_key="ours")
    sent = server.requests[0].headers
    assert sent["authorization"] == "Bearer ours"
    assert (sent["x-request-id"], sent["traceparent"], sent["tracestate"]) == ("req-7", trace, "a=b")
    assert set(sent) == {
        "host", "accept", "content-type", "authorization", "x-request-id", "traceparent", "tracestate",
        "content-length",
    }  # fmt: skip
    assert sent["host"] == server.url.removeprefix("http://")


async def test_a_trace_that_is_none_is_not_sent_on() -> None:
    _, server = await relay(answering(CHAT), headers={"Traceparent": "00-xyz-01", "Tracestate": "a=b"})
    assert "traceparent" not in server.requests[0].headers
    assert "tracestate" not in server.requests[0].headers


async def test_configured_headers_are_sent_and_replace_ours() -> None:
    async with RawServer(answering(CHAT)) as server:
        backend = backend_of(server.url, api_key="k", headers={"Authorization": "Token x", "X-Team": "a"})
        await ask(backend, {"messages": MESSAGES})
        await backend.close()
    assert server.requests[0].headers["authorization"] == "Token x"
    assert server.requests[0].headers["x-team"] == "a"


@pytest.mark.parametrize(
    ("asks", "path", "request_body", "answer", "billed"),
    [
        (
            "createEmbedding",
            "/v1/embeddings",
            {"input": "x"},
            {"data": [{"embedding": [1.0]}], "usage": {"prompt_tokens": 2, "total_tokens": 2}},
            (2, 0),
        ),
        (
            "rerank",
            "/v1/rerank",
            {"query": "x", "documents": ["y"]},
            {"results": [], "usage": {"total_tokens": 5}},
            (5, 0),
        ),
        (
            "score",
            "/v1/score",
            {"text_1": "x", "text_2": "y"},
            {"data": [], "usage": {"prompt_tokens": 4}},
            (4, 0),
        ),
        (
            "createResponse",
            "/v1/responses",
            {"input": "x"},
            {"output": [], "usage": {"input_tokens": 6, "output_tokens": 2}},
            (6, 2),
        ),
        (
            "createMessage",
            "/v1/messages",
            {"messages": MESSAGES},
            {"content": [], "usage": {"input_tokens": 6, "output_tokens": 2, "cache_read_input_tokens": 3}},
            (9, 2),
        ),
    ],
)
async def test_other_operations_go_to_their_own_paths(
    asks: str, path: str, request_body: dict[str, Any], answer: dict[str, Any], billed: tuple[int, int]
) -> None:
    got, server = await relay(answering(answer), request_body, asks=asks)
    assert server.requests[0].line == f"POST {path} HTTP/1.1"
    assert (got.delivered.prompt, got.delivered.completion) == billed


async def test_a_base_url_that_ends_with_v1_is_the_same_server() -> None:
    async with RawServer(answering(CHAT)) as server:
        for url in (server.url + "/v1", server.url + "/v1/", server.url):
            backend = backend_of(url)
            await ask(backend, {"messages": MESSAGES})
            await backend.close()
        backend = backend_of(server.url + "/api", options={"prefix": "/v1beta"})
        await ask(backend, {"messages": MESSAGES})
        await backend.close()
    lines = [asked.line.split()[1] for asked in server.requests]
    assert lines == ["/v1/chat/completions"] * 3 + ["/api/v1beta/chat/completions"]


async def test_usage_that_is_not_told_is_estimated_from_what_came() -> None:
    got, _ = await relay(answering({**CHAT, "usage": None}))
    assert got.delivered.completion > 0
    assert got.json()["model"] == "mine"


async def test_what_another_gateway_charged_is_not_passed_on() -> None:
    usage = {**USAGE, "cost": 1.5, "latency_ms": 900.0}
    got, _ = await relay(answering({**CHAT, "usage": usage}), kind="penstock")
    assert got.body.count(b'"latency_ms"') == 1
    assert got.json()["usage"].get("cost") != 1.5
    assert got.delivered.completion == 3


# ---------------------------------------------------------------------- what each kind of server is sent


async def sent_to(kind: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    _, server = await relay(answering(CHAT), {"messages": MESSAGES, **body}, kind=kind, **more)
    return dict(json.loads(server.requests[0].body))


@pytest.mark.parametrize("kind", ["llamacpp", "tgi"])
async def test_servers_that_know_only_max_tokens_get_it(kind: str) -> None:
    sent = await sent_to(kind, {"max_completion_tokens": 5})
    assert (sent["max_tokens"], "max_completion_tokens" in sent) == (5, False)


async def test_limits_by_names_that_are_another_operations_do_not_go_on() -> None:
    body = {"prompt": "x", "max_tokens": 1, "max_completion_tokens": 5000, "max_output_tokens": 5000}
    sent = await sent_to("vllm", body, asks="createCompletion")
    assert [name for name in sent if name.startswith("max_")] == ["max_tokens"]


async def test_openai_gets_max_completion_tokens() -> None:
    sent = await sent_to("openai", {"max_tokens": 9})
    assert (sent["max_completion_tokens"], "max_tokens" in sent) == (9, False)


async def test_a_priority_is_ours_to_give_and_only_where_the_server_obeys_it() -> None:
    assert "priority" not in await sent_to("vllm", {"priority": -100})
    assert (await sent_to("vllm", {"priority": -100}, priority=True))["priority"] == 0
    assert "priority" not in await sent_to("llamacpp", {"priority": 1}, priority=True)


async def test_a_high_number_is_early_for_sglang() -> None:
    async with RawServer(answering(CHAT)) as server:
        backend = backend_of(server.url, "sglang", priority=True)
        got = Got()
        exchange = exchange_of("createChatCompletion", {"model": "mine", "messages": MESSAGES}, got)
        exchange.priority = 2
        await backend.answer(exchange)
        await backend.close()
    assert json.loads(server.requests[0].body)["priority"] == -2


async def test_tenants_have_salts_of_their_own_where_the_server_keeps_prefixes_apart() -> None:
    salts = {
        (await sent_to("vllm", body, caller=Caller(tenant, salt=tenant)))["cache_salt"]
        for tenant in ("a", "b")
        for body in ({}, {"cache_salt": "x" * 128})
    }
    assert len(salts) == 4
    assert {len(salt) for salt in salts} == {32}
    assert "cache_salt" not in await sent_to("vllm", {})
    assert "cache_salt" not in await sent_to("openai", {"cache_salt": "x"}, caller=Caller("a", salt="a"))


# ---------------------------------------------------------------------- refusals and failures


NO_REASON = "The server behind this model refused the request without a reason."
TOO_LONG = "This model's maximum context length is 8 tokens."


@pytest.mark.parametrize(
    ("body", "message", "code", "param"),
    [
        ({"error": {"message": "n is too big", "param": "n", "code": "bad_n"}}, "n is too big", "bad_n", "n"),
        ({"error": {"message": "no", "code": 400}}, "no", "invalid_value", None),
        ({"object": "error", "message": "flat", "type": "BadRequestError"}, "flat", "invalid_value", None),
        ({"error": "Input is wrong", "error_type": "validation"}, "Input is wrong", "invalid_value", None),
        ({"detail": [{"loc": ["body", "top_p"], "msg": "high"}]}, "top_p: high", "invalid_value", None),
        ({"detail": "text"}, "text", "invalid_value", None),
        ({"error": {"message": TOO_LONG}}, TOO_LONG, "context_length_exceeded", None),
        (
            {"error": {"message": "big", "type": "exceed_context_size_error"}},
            "big",
            "context_length_exceeded",
            None,
        ),
        (b"not json", NO_REASON, "invalid_value", None),
        (b"[1]", NO_REASON, "invalid_value", None),
        (b"[" * 60_000, NO_REASON, "invalid_value", None),
        (b"[" * 100_000, NO_REASON, "invalid_value", None),
    ],
)
@pytest.mark.parametrize("status", ["400 Bad Request", "422 Unprocessable"])
async def test_the_clients_own_mistakes_are_told_in_our_shape(
    status: str, body: Any, message: str, code: str, param: str | None
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = await failing(always(plain(content, status=status)))
    assert not isinstance(error, BackendError)
    assert (error.status, str(error), error.code, error.param) == (400, message, code, param)


async def test_a_servers_words_do_not_tell_where_it_is_or_what_it_calls_the_model() -> None:
    text = "upstream-name at http://10.1.2.3:80/v1 (10.1.2.3:80) from /srv/m/x.gguf wants text/plain or 1/2"
    error = await failing(always(plain(json.dumps({"error": {"message": text}}).encode(), status="400 Bad")))
    assert str(error) == "mine at [address] ([address]) from [path] wants text/plain or 1/2"


@pytest.mark.parametrize("status", [401, 403, 500, 302, 201, 418])
async def test_what_is_wrong_between_us_and_the_server_is_not_the_clients_fault(status: int) -> None:
    body = json.dumps({"error": {"message": "key sk-secret of http://10.0.0.1 is wrong"}}).encode()
    error = await failing(always(plain(body, status=f"{status} X", location="http://10.0.0.1/")))
    assert isinstance(error, BackendError)
    assert error.status == 502
    assert "sk-secret" not in str(error)
    assert "10.0.0.1" not in str(error)


@pytest.mark.parametrize(
    ("status", "seen", "header", "retry_after"),
    [
        (429, 429, "7", 7.0),
        (429, 429, "0.5", 0.5),
        (429, 429, "Wed, 21 Oct 2026 07:28:00 GMT", None),
        (429, 429, "-5", None),
        (429, 429, "nan", None),
        (429, 429, "1e9", 3600.0),
        (503, 503, "", None),
        (529, 503, "3", 3.0),
        (504, 504, "", None),
        (408, 504, "", None),
        (425, 503, "", None),
        (500, 502, "2", 2.0),
    ],
)
async def test_a_busy_server_says_when_to_come_back(
    status: int, seen: int, header: str, retry_after: float | None
) -> None:
    error = await failing(always(plain(b"", status=f"{status} X", retry_after=header)))
    assert isinstance(error, BackendError)
    assert (error.status, error.retry_after) == (seen, retry_after)


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"null", b"[]", b"{}", b"hello", b'{"choices":', b'{"choices":null}', b'{"choices":"x"}',
        b'{"choices":[],"usage":{"completion_tokens":-1}}',
        b'{"choices":[],"usage":{"completion_tokens":"3"}}',
        b'{"choices":[],"usage":[]}', b"\xff\xfe", b'{"choices":[]}garbage',
    ],
)  # fmt: skip
async def test_an_answer_that_is_none_is_a_failure_of_the_backend(answer: bytes) -> None:
    error = await failing(answering(answer))
    assert isinstance(error, BackendError)
    assert error.status == 502


@pytest.mark.parametrize(
    ("handler", "status"),
    [
        (once(), 502),
        (once(b"garbage\r\n\r\n"), 502),
        (once(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"), 502),
    ],
)
async def test_an_answer_that_does_not_come_is_a_failure_of_the_backend(
    handler: Handler, status: int
) -> None:
    error = await failing(handler)
    assert isinstance(error, BackendError)
    assert error.status == status
    assert "127.0.0.1" not in str(error)


async def test_a_server_that_is_not_there_is_out_at_once() -> None:
    async with RawServer(once()) as server:
        pass
    backend = backend_of(server.url, "vllm")
    with pytest.raises(BackendError) as caught:
        await ask(backend, {"messages": MESSAGES})
    assert caught.value.status == 503
    assert backend.health.alive is False
    await backend.close()


# ---------------------------------------------------------------------- configuration


def test_every_preset_makes_a_backend() -> None:
    for kind, preset in PRESETS.items():
        config = BackendConfig(name="x", kind=kind, url="http://localhost:1")
        backend = RelayBackend(ModelConfig(name="m"), config, HealthConfig())
        assert (backend.operations, backend.capacity) == (preset.operations, preset.capacity)
        assert backend.upstream_model == "m"
        assert not backend.prioritizes


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"prefx": "/v1"}, "knows prefix"),
        ({"stream_usage": "yes"}, "Expected `bool"),
        ({"running_usage": "some"}, "Invalid enum value"),
        ({"operations": ["chat"]}, "there are createChatCompletion"),
        ({"health": "health"}, "begin with a slash"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        backend_of("http://localhost:1", options=options)


def test_a_server_without_a_url_is_refused_unless_everybody_knows_where_it_is() -> None:
    with pytest.raises(ConfigError, match="needs a url"):
        RelayBackend(ModelConfig(name="m"), BackendConfig(name="x", kind="vllm"), HealthConfig())
    RelayBackend(ModelConfig(name="m"), BackendConfig(name="x", kind="openai"), HealthConfig())


async def test_openais_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    _, server = await relay(answering(CHAT), kind="openai")
    assert server.requests[0].headers["authorization"] == "Bearer sk-env"
    _, server = await relay(answering(CHAT), kind="vllm")
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("usage", "billed"),
    [
        ({}, (3, 23)),
        ({"prompt_tokens": None, "completion_tokens": None}, (3, 23)),
        ({"prompt_tokens": 10}, (10, 23)),
        ({"completion_tokens": 9}, (3, 9)),
        ({"total_tokens": 15}, (3, 23)),
        ({"total_tokens": 50}, (27, 23)),
        ({"prompt_tokens": 10, "total_tokens": 15}, (10, 5)),
    ],
)
async def test_counts_that_a_usage_lacks_are_guessed(usage: Any, billed: tuple[int, int]) -> None:
    got = Got()
    async with RawServer(answering({**CHAT, "usage": usage})) as server:
        backend = backend_of(server.url)
        got.exchange = exchange_of("createChatCompletion", {"messages": MESSAGES}, got)
        got.exchange.delivered.prompt = 3  # the estimate
        await backend.answer(got.exchange)
        await backend.close()
    assert (got.delivered.prompt, got.delivered.completion) == billed


@pytest.mark.parametrize("at", ["choices", "usage", "other"])
async def test_an_answer_nested_without_end_is_the_servers_failure(at: str) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    fields = {"choices": b"[]", "usage": b"null", at: deep}
    body = b",".join(b'"%b":%b' % (name.encode(), value) for name, value in fields.items())
    error = await failing(answering(b"{%b}" % body))
    assert (type(error), error.status) == (BackendError, 502)


# ---------------------------------------------------------------------- what is not the client's to say

RESPONSE = {"id": "resp_1", "model": "upstream-name", "output": [], "usage": {"input_tokens": 1}}


async def refused(body: dict[str, Any], asks: str, **more: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        await relay(answering(CHAT), body, asks=asks, **more)
    return caught.value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kv_transfer_params", {"remote_host": "10.0.0.1"}), ("bootstrap_host", "10.0.0.1"),
        ("bootstrap_port", 1), ("bootstrap_room", 1), ("rid", "another's"), ("lora_path", "/etc"),
        ("logits_processors", ["a.b"]), ("chat_template", "{{ 1 }}"),
    ],
)  # fmt: skip
async def test_what_is_the_operators_is_not_taken_from_a_client(field: str, value: Any) -> None:
    error = await refused({"messages": MESSAGES, field: value}, "createChatCompletion")
    assert (error.param, error.code) == (field, "unknown_parameter")


@pytest.mark.parametrize(("one", "other"), [(1, 5000), (5000, 1), (0, 1)])
async def test_two_limits_that_differ_are_refused(one: int, other: int) -> None:
    body = {"messages": MESSAGES, "max_completion_tokens": one, "max_tokens": other}
    error = await refused(body, "createChatCompletion")
    assert error.param == "max_completion_tokens"
    assert "give one of them" in str(error)


@pytest.mark.parametrize("kind", ["openai", "vllm", "openai_compatible"])
async def test_a_service_tier_is_the_gateways_and_stays_here(kind: str) -> None:
    assert "service_tier" not in await sent_to(kind, {"service_tier": "priority"})


async def test_work_in_the_background_is_refused() -> None:
    error = await refused({"input": "x", "background": True}, "createResponse", options={"stored": True})
    assert (error.param, error.code) == ("background", "unsupported_value")


NAMED = [
    {"previous_response_id": "resp_1"},
    {"conversation": "conv_1"},
    {"conversation": {"id": "conv_1"}},
    {"prompt": {"id": "pmpt_1"}},
    {"input": [{"type": "item_reference", "id": "msg_1"}]},
    {"input": [{"id": "msg_1"}]},
]


@pytest.mark.parametrize("named", NAMED)
async def test_what_a_server_keeps_is_not_named_by_clients_that_share_its_key(named: dict[str, Any]) -> None:
    error = await refused({"input": "x", **named}, "createResponse")
    assert (error.param, error.code) == (next(iter(named)), "unsupported_parameter")


@pytest.mark.parametrize("named", NAMED)
async def test_an_operator_may_let_clients_name_what_the_server_keeps(named: dict[str, Any]) -> None:
    body = {"input": "x", **named}
    _, server = await relay(answering(RESPONSE), body, asks="createResponse", options={"stored": True})
    assert json.loads(server.requests[0].body).items() >= body.items()


async def test_nulls_and_texts_about_references_are_no_reason_to_refuse() -> None:
    body = {
        "input": [{"role": "user", "content": 'an "item_reference"'}],
        "previous_response_id": None,
        "background": False,
        "chat_template": None,
    }
    got, _ = await relay(answering(RESPONSE), body, asks="createResponse")
    assert got.status == 200
