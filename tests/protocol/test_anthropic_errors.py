"""Whose business an error of Anthropic's is, and how ours look to its clients."""

from __future__ import annotations

import json

import pytest
from anthropic.types import ErrorResponse

from penstock.protocol.anthropic_errors import (
    anthropic_error,
    anthropic_error_event,
    error_type,
    stream_trouble,
    trouble,
)
from penstock.protocol.errors import ErrorBody, Failure


def body(kind: str, message: str = "They said this.") -> bytes:
    return json.dumps(
        {"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"}
    ).encode()


@pytest.mark.parametrize(
    ("status", "kind", "seen", "blame"),
    [
        (400, "invalid_request_error", 400, "client"),
        (413, "request_too_large", 413, "client"),
        (401, "authentication_error", 502, "operator"),
        (402, "billing_error", 502, "operator"),
        (403, "permission_error", 502, "operator"),
        (404, "not_found_error", 502, "operator"),
        (429, "rate_limit_error", 429, "server"),
        (500, "api_error", 502, "server"),
        (504, "timeout_error", 504, "server"),
        (529, "overloaded_error", 503, "server"),
    ],
)
def test_each_kind_has_its_status_and_its_blame(status: int, kind: str, seen: int, blame: str) -> None:
    found = trouble(status, body(kind), "7")
    assert (found.status, found.blame) == (seen, blame)
    # Only what the client did wrong is told in Anthropic's words: theirs may name the account or the key.
    assert ("They said this." in found.message) == (blame == "client")
    assert found.retry_after == (None if blame == "client" else 7)


def test_something_that_the_request_names_and_is_not_there_is_the_clients_business() -> None:
    missing = b'{"error":{"type":"not_found_error","message":"File not found: file_1"}}'
    assert (trouble(404, missing, None).status, trouble(404, missing, None).blame) == (400, "client")
    unknown = b'{"error":{"type":"not_found_error","message":"model: claude-0"}}'
    assert (trouble(404, unknown, None).status, trouble(404, unknown, None).blame) == (502, "operator")


@pytest.mark.parametrize("answer", [b"", b"<html>Bad gateway</html>", b"{}", b'{"error": "x"}', b"\xff"])
def test_an_error_without_its_body_is_known_by_its_status(answer: bytes) -> None:
    assert trouble(401, answer, None).blame == "operator"
    assert trouble(529, answer, None).status == 503
    assert trouble(503, answer, None).status == 502
    assert trouble(400, answer, None).message


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("3", 3), ("0.5", 0.5), ("-1", None), ("nan", None), ("inf", None), ("Wed, 21 Oct", None), (None, None)],
)
def test_when_to_come_back(given: str | None, seconds: float | None) -> None:
    assert trouble(429, body("rate_limit_error"), given).retry_after == seconds


def test_an_error_event_of_a_stream_may_be_anything() -> None:
    assert stream_trouble({"type": "rate_limit_error", "message": "m"}).status == 429
    assert stream_trouble({"type": "new_error", "message": "m"}).status == 502
    assert stream_trouble(None).status == 502


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 415, 422, 429, 431, 500, 502, 503, 504])
def test_our_errors_are_ones_that_its_sdk_knows(status: int) -> None:
    failure = Failure(status, ErrorBody("What is wrong.", "server_error"))
    sent = json.loads(anthropic_error(failure, "req-1"))
    assert sent["error"] == {"type": error_type(status), "message": "What is wrong."}
    if sent["error"]["type"] != "request_too_large":  # documented, though the SDK's types leave it out
        ErrorResponse.model_validate(sent, strict=True)
    event = anthropic_error_event(failure, "req-1")
    assert event.startswith(b"event: error\ndata: ")
    assert event.endswith(b"\n\n")
