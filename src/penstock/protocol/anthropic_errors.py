"""Anthropic's errors: what theirs mean for our client, and ours in their shape."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from penstock.protocol.errors import Failure, retry_seconds

# Whose business it is: the client's request, the operator's key or configuration, or the server's state.
Blame = Literal["client", "operator", "server"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A foreign server's error, understood. `status` is what our client is to see."""

    status: int
    message: str
    blame: Blame
    retry_after: float | None = None  # seconds, as the server said


class ErrorDetail(msgspec.Struct, frozen=True):
    type: str
    message: str


class AnthropicError(msgspec.Struct, frozen=True, kw_only=True):
    """What a failed request to /v1/messages gets, whatever its status."""

    type: Literal["error"] = "error"
    error: ErrorDetail
    request_id: str | None = None


class _Foreign(msgspec.Struct):
    error: ErrorDetail


# error.type: the status our client sees, whose business it is, our sentence where theirs is not for clients.
_KINDS: Final[dict[str, tuple[int, Blame, str | None]]] = {
    "invalid_request_error": (400, "client", None),
    "request_too_large": (413, "client", None),
    "authentication_error": (502, "operator", "Anthropic refused the key that the gateway has for it."),
    "permission_error": (502, "operator", "Anthropic does not allow the gateway's key to do this."),
    "billing_error": (502, "operator", "Anthropic refused the request for the state of the account."),
    "not_found_error": (502, "operator", "Anthropic does not know the model that the gateway asked for."),
    "rate_limit_error": (429, "server", "Anthropic's rate limit is reached."),
    "timeout_error": (504, "server", "Anthropic took too long to answer."),
    "api_error": (502, "server", "Anthropic failed on this request."),
    "overloaded_error": (503, "server", "Anthropic is overloaded."),
}
# What a request may name beside its model, and is not there: that is no mistake of the gateway's.
_NAMED: Final = re.compile(r"(?:file|container|skill)\b", re.IGNORECASE)
_BY_STATUS: Final = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 422: "invalid_request_error", 429: "rate_limit_error",
    504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip
# The type that Anthropic's clients expect for a status of ours.
_TYPES: Final = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 408: "timeout_error", 413: "request_too_large", 429: "rate_limit_error",
    503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip


def trouble(status: int, body: bytes, retry_after: str | None) -> Trouble:
    """What an answer that is not 200 means."""
    kind = _BY_STATUS.get(status, "api_error")
    message = ""
    try:
        foreign = msgspec.json.decode(body, type=_Foreign).error
        message = foreign.message
        if foreign.type in _KINDS:
            kind = foreign.type
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass  # a proxy between us may answer in a way of its own: the status has to do
    return _trouble(kind, message, retry_seconds(retry_after))


def stream_trouble(error: Any) -> Trouble:
    """What the error event of a stream means."""
    match error:
        case {"type": str(kind), "message": str(message)}:
            return _trouble(kind if kind in _KINDS else "api_error", message, None)
    return _trouble("api_error", "", None)


def error_type(status: int) -> str:
    return _TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")


def anthropic_error(failure: Failure, request_id: str | None) -> bytes:
    """One of our errors, as Anthropic's clients read them."""
    detail = ErrorDetail(error_type(failure.status), failure.body.message)
    return msgspec.json.encode(AnthropicError(error=detail, request_id=request_id))


def anthropic_error_event(failure: Failure, request_id: str | None) -> bytes:
    """The same inside a stream, which it ends."""
    return b"event: error\ndata: " + anthropic_error(failure, request_id) + b"\n\n"


def _trouble(kind: str, message: str, retry_after: float | None) -> Trouble:
    if kind == "not_found_error" and _NAMED.match(message):
        kind = "invalid_request_error"
    status, blame, sentence = _KINDS[kind]
    if blame == "client":
        return Trouble(status, message or "Anthropic refused the request.", blame)
    return Trouble(status, sentence or message, blame, retry_after)
