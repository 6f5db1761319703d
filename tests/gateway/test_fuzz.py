"""Requests made up from the OpenAPI document, good and bad: never a 5xx, always the error shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.server import Server

# What is sent to each path when only one field is made up; the encoder's paths go to an encoder.
CHAT_BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1},
    "/v1/completions": {"prompt": "hi", "max_tokens": 1},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [1]},
    "/admin/backends/drain": {"model": "hi", "replica": "ho"},
}
ENCODER_BODIES: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": "hi"},
    "/v1/rerank": {"query": "hi", "documents": ["ho"]},
    "/v1/score": {"text_1": "hi", "text_2": "ho"},
}
BODIES = {**CHAT_BODIES, **ENCODER_BODIES}
EXPLORE = settings(
    max_examples=100,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# What the generator makes up may ask for hours of tokens.
BOUNDS = {"max_tokens": 4, "max_completion_tokens": 4, "n": 1, "best_of": 2}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3)
    ),
    max_leaves=6,
)


def check(server: Server, path: str, body: bytes) -> None:
    reply = server.post(path, body)
    assert reply.status < 500, (path, body, reply.body)
    if reply.status >= 400:
        assert reply.error["message"].strip()


def bounded(body: Any) -> Any:
    """Keep what the generator chose wrong; make short what it chose right."""
    if isinstance(body, dict):
        for name, limit in BOUNDS.items():
            value = body.get(name)
            if (name == "max_tokens" and value is None) or (type(value) is int and value > limit):
                body[name] = limit
        if type(body.get("min_tokens")) is int and body["min_tokens"] > 4:
            del body["min_tokens"]
    return body


def serving(path: str, request: pytest.FixtureRequest) -> Server:
    name = "embedding_server" if path in ENCODER_BODIES else "server"
    server: Server = request.getfixturevalue(name)
    return server


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
@pytest.mark.parametrize("path", BODIES)
def test_requests_made_from_the_document_never_break_the_server(
    path: str, mode: Any, request: pytest.FixtureRequest
) -> None:
    server = serving(path, request)
    schema = schemathesis.openapi.from_dict(json.loads(server.get("/openapi.json").body))
    sent = 0

    @given(case=schema[path]["POST"].as_strategy(generation_mode=mode))
    @EXPLORE
    def run(case: Any) -> None:
        nonlocal sent
        if isinstance(case.body, dict | list | str | int | float | None):
            check(server, path, encoded(bounded(case.body)))
            sent += 1

    run()
    assert sent > 10


@pytest.mark.parametrize("path", BODIES)
def test_any_value_in_any_known_field_never_breaks_the_server(
    path: str, request: pytest.FixtureRequest
) -> None:
    server = serving(path, request)
    document = json.loads(server.get("/openapi.json").body)
    reference = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"][
        "$ref"
    ]
    names = sorted(document["components"]["schemas"][reference.rpartition("/")[2]]["properties"])
    base = BODIES[path]

    @given(name=st.sampled_from(names), value=JSON)
    @EXPLORE
    def run(name: str, value: Any) -> None:
        check(server, path, encoded(bounded({**base, name: value})))

    run()


def encoded(body: Any) -> bytes:
    # NaN, infinities and lone surrogates go out as Python writes them: that is part of the test.
    return json.dumps(body).encode("utf-8", "surrogatepass")
