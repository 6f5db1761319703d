"""Every error a client can see, in the one shape `{"error": {message, type, param, code}}`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec

from penstock.errors import (
    EngineUnavailableError,
    InvalidRequestError,
    PenstockError,
    QueueFullError,
)

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
UNAVAILABLE = "service_unavailable_error"
RATE_LIMIT = "rate_limit_error"

UNAVAILABLE_RETRY_SECONDS = 5.0
MAX_RETRY_SECONDS = 3600.0  # what another server may ask for


class ErrorBody(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorResponse(msgspec.Struct, frozen=True):
    """What every failed request gets, whatever its status."""

    error: ErrorBody


@dataclass(frozen=True, slots=True)
class Failure:
    """An error ready to be sent: status, body, extra headers."""

    status: int
    body: ErrorBody
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        return msgspec.json.encode(ErrorResponse(self.body))


class HTTPError(PenstockError):
    """A failure that belongs to HTTP rather than to a field of the request."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        type: str = INVALID_REQUEST,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.type = type
        self.headers = headers or {}


def failure(error: BaseException) -> Failure:
    """How `error` looks to the client. What was not raised on purpose is a 500 that shows nothing inside."""
    match error:
        case HTTPError():
            body = ErrorBody(str(error), error.type, error.param, error.code)
            return Failure(error.status, body, error.headers)
        case InvalidRequestError():
            return Failure(400, ErrorBody(str(error), INVALID_REQUEST, error.param, error.code))
        case QueueFullError():
            return Failure(
                429, ErrorBody(str(error), RATE_LIMIT, None, "queue_full"), retry(error.retry_after)
            )
        case EngineUnavailableError():
            body = ErrorBody(str(error), UNAVAILABLE, None, "engine_unavailable")
            return Failure(503, body, retry(UNAVAILABLE_RETRY_SECONDS))
        case _:
            message = "The server failed on this request; its log has the reason under the X-Request-Id."
            return Failure(500, ErrorBody(message, SERVER_ERROR, None, "internal_error"))


def retry(seconds: float) -> dict[str, str]:
    """Both spellings: `Retry-After` takes whole seconds, the SDKs prefer the millisecond one."""
    return {
        "Retry-After": str(max(1, math.ceil(seconds))),
        "retry-after-ms": str(max(1, math.ceil(seconds * 1000))),
    }


def retry_seconds(header: str | bytes | None) -> float | None:
    """What another server's `Retry-After` says. As a date it is not used: clocks differ."""
    try:
        value = float(header or "")
    except ValueError:
        return None
    return min(value, MAX_RETRY_SECONDS) if math.isfinite(value) and value >= 0 else None
