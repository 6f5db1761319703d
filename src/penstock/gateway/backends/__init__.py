"""Who can answer a request: one file for each kind of server, all behind one protocol.

A backend takes an `Exchange` and answers it to its end, or raises before the first byte so that
another one can. It knows nothing of tenants, queues or prices; those are settled around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import InvalidRequestError
from penstock.protocol.errors import (
    INVALID_REQUEST,
    RATE_LIMIT,
    SERVER_ERROR,
    UNAVAILABLE,
    UNAVAILABLE_RETRY_SECONDS,
    HTTPError,
    retry,
)

if TYPE_CHECKING:
    from penstock.gateway.balance import Load
    from penstock.gateway.exchange import Exchange
    from penstock.gateway.health import Health


_CODES = {429: "backend_overloaded", 502: "bad_gateway", 503: "engine_unavailable", 504: "gateway_timeout"}
_TYPES = {429: RATE_LIMIT, 503: UNAVAILABLE}


class BackendError(HTTPError):
    """This backend cannot answer now, through no fault of the client's; another one perhaps can.

    The message is for the client: it names no address. `status` is what the client gets if nobody can.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 502,
        retry_after: float | None = None,
        died: bool = False,
        at_fault: bool = True,
        logged: str = "",
    ) -> None:
        super().__init__(
            status,
            message,
            code=_CODES.get(status, "bad_gateway"),
            type=_TYPES.get(status, SERVER_ERROR),
            headers=retry(retry_after or UNAVAILABLE_RETRY_SECONDS) if status in (429, 503) else None,
        )
        self.retry_after = retry_after  # seconds, if it said so
        self.at_fault = at_fault  # it counts against its health
        self.logged = logged or message  # in place of a message that has the server's own words
        self.died = died  # it went down with this request, which may be the reason


def logged(error: Exception) -> str:
    """What the log says of an error. What the client is told of its own mistake may quote what it sent, in a
    server's words or ours."""
    if isinstance(error, BackendError):
        return error.logged
    if isinstance(error, HTTPError | InvalidRequestError):
        return f"{error.code or 'invalid_value'}."
    return str(error)


class NotOfferedError(BackendError):
    """The backend lacks what was asked of it, whatever else it answers. It is none the worse for that.

    Whoever raises this has taken the operation out of its `operations` where that is what it lacks.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, status=400, at_fault=False)
        self.code, self.param, self.type = "unsupported_task", "model", INVALID_REQUEST


class Backend(Protocol):
    """One replica of a model: an engine of ours, or somebody's server behind HTTP."""

    @property
    def name(self) -> str:
        """Unique among the replicas of its model."""

    @property
    def operations(self) -> frozenset[str]:
        """What it can answer, by the names of `protocol.openapi.OPERATIONS`, as far as is known now."""

    @property
    def vision(self) -> bool:
        """Whether it may be sent images."""

    @property
    def capacity(self) -> int:
        """Choices it should hold at once; more of them wait in the gateway's queue."""

    @property
    def prioritizes(self) -> bool:
        """Whether it lets urgent work overtake what it has already taken."""

    @property
    def restarts(self) -> bool:
        """Whether somebody starts it again when it is gone."""

    @property
    def upstream_model(self) -> str:
        """What it calls the model."""

    @property
    def health(self) -> Health: ...

    def load(self) -> Load | None:
        """What it last said about its own load; None: it does not say."""

    async def start(self) -> None:
        """Begin to watch it. Returns at once for servers that need not be there yet."""

    async def answer(self, exchange: Exchange) -> None:
        """Answer to the end.

        Raises BackendError, before anything was written, if another replica should try; HTTPError or
        InvalidRequestError for what the client is to blame for; ClientGoneError if it left.
        """

    async def close(self) -> None:
        """Stop watching it. Nothing is sent to it any more."""
