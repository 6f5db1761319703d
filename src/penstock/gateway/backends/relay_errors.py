"""A server's refusals and failures, as what our client should see of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from penstock.gateway.backends import BackendError, NotOfferedError
from penstock.gateway.upstream import UpstreamError
from penstock.protocol.errors import HTTPError, retry_seconds

MAX_MESSAGE: Final = 2000  # characters of a server's own words

# What the client itself has to change. Anything else is between us and the server.
_CLIENTS: Final = {400: 400, 409: 400, 413: 413, 422: 400}
_LATER: Final = {408: 504, 425: 503, 429: 429, 503: 503, 504: 504, 524: 504, 529: 503}
_CREDENTIALS: Final = (401, 402, 403, 407)
_ABSENT: Final = (404, 405, 501)

_TOO_LONG: Final = re.compile(
    r"context[ _](?:length|size|window)|exceed_context|maximum (?:sequence|input|prompt) length|"
    r"max_seq_len|max_num_tokens|`inputs` (?:tokens|must have)|prompt is too long|longer than the m",
    re.IGNORECASE,
)
# A 404 for the model: the configuration's mistake. Names of models and keys may stand between the words.
_NO_MODEL: Final = re.compile(
    r"\b(?:model|deployment)\b.*(?:not exist|not found|not available|not have access|not served)|"
    r"(?:unknown|no such|not find|not found|invalid) (?:the )?(?:model|deployment)\b",
    re.IGNORECASE | re.DOTALL,
)
_NO_MODEL_CODES: Final = ("model_not_found", "DeploymentNotFound", "ModelNotFound")
# A 404 for something that the request itself names, such as an earlier response.
_NAMED: Final = re.compile(
    r"(?:the )?(?:previous )?(?:response|conversation|file|container|item)\b.*\bnot (?:found|exist)",
    re.IGNORECASE | re.DOTALL,
)
_FILE_NOT_FOUND: Final = "File Not Found"  # which is how llama.cpp says that it has no such endpoint
# A 501 for a whole endpoint; others are for something that the request asks in it.
_NO_ENDPOINT: Final = re.compile(r"\bAPI\b|\bendpoint\b|server does not support", re.IGNORECASE)
# Where a server is and where it keeps its files is nobody's business.
_ADDRESS: Final = re.compile(r"\b\w+://[^\s'\"<>)\]]+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\blocalhost:\d+")
_PATH: Final = re.compile(r"(?<![\w/.~-])[/~]/?[\w.@+-]+(?:/[\w.@+-]+)+/?")


@dataclass(frozen=True, slots=True)
class Words:
    """What a server said about an error, whichever way it says such things."""

    message: str = ""
    code: str | None = None
    param: str | None = None
    type: str = ""


def words(content: Any) -> Words:
    """From a decoded body or event, in OpenAI's shape, the flat one of older servers, TGI's or FastAPI's."""
    if not isinstance(content, dict):
        return Words()
    error = content.get("error", content)
    if isinstance(error, str):
        return Words(error, _text(content.get("error_type")) or None)
    if not isinstance(error, dict):
        return Words()
    message = error.get("message")
    if not isinstance(message, str):
        message = _detail(error.get("detail"))
    code = error.get("code")
    return Words(
        message,
        code if isinstance(code, str) else None,  # a number is the status once more
        _text(error.get("param")) or None,
        _text(error.get("type")),
    )


def refusal(status: int, retry_after: bytes, body: bytes, names: dict[str, str]) -> HTTPError:
    """What to raise for an answer that is not 200. `names`: what must read otherwise in its words."""
    try:
        said = words(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = Words()
    return failed(status, said, names, retry_after)


def failed(status: int, said: Words, names: dict[str, str], retry_after: bytes = b"") -> HTTPError:
    if status in _CLIENTS:
        return _clients(_CLIENTS[status], said, names)
    if status in _CREDENTIALS:
        return BackendError(
            "The server behind this model does not accept the gateway's credentials; "
            "whoever runs the gateway must set the backend's api_key."
        )
    if status in _ABSENT:
        return _absent(status, said, names)
    if status in _LATER:
        what = "has too many requests" if status == 429 else "cannot answer now"
        return BackendError(
            f"The server behind this model {what} (status {status}).",
            status=_LATER[status],
            retry_after=retry_seconds(retry_after),
        )
    return BackendError(
        f"The server behind this model failed with status {status}.", retry_after=retry_seconds(retry_after)
    )


def misplaced(status: int) -> BackendError:
    """What to raise where something is gone that was there, or never was and should be."""
    return BackendError(
        f"The server behind this model does not know the model or this endpoint (status {status}); "
        "whoever runs the gateway must check the backend's url and model."
    )


def unusable(error: UpstreamError) -> BackendError:
    """What to raise for an answer that did not come, or not whole."""
    status = 504 if error.kind == "timeout" else 503 if error.kind in ("refused", "unresolved") else 502
    message = f"The server behind this model gave no usable answer. {error}"
    return BackendError(message, status=status, died=error.lost)


def garbage(what: str) -> BackendError:
    return BackendError(f"The server behind this model gave no usable answer: {what}.")


def _absent(status: int, said: Words, names: dict[str, str]) -> HTTPError:
    """Whether it is the model, the endpoint, or something that the request names which is not there."""
    message, coded = said.message, said.code in _NO_MODEL_CODES
    named = _NAMED.match(message) and message != _FILE_NOT_FOUND
    if status == 404 and not coded and named:
        return _clients(400, said, names)
    if status == 404 and (coded or _NO_MODEL.search(message)):
        return misplaced(status)
    if status == 501 and message and not _NO_ENDPOINT.search(message):
        return _clients(400, said, names)
    return NotOfferedError("The server behind this model does not offer this endpoint.")


def _clients(status: int, said: Words, names: dict[str, str]) -> HTTPError:
    code = said.code
    if code is None or code == "validation":
        long = _TOO_LONG.search(said.message) or "context" in said.type
        code = "context_length_exceeded" if long else "invalid_value"
    message = (
        decent(said.message, names) or "The server behind this model refused the request without a reason."
    )
    return HTTPError(
        status, message, code=decent(code, names), param=said.param and decent(said.param, names)
    )


def decent(text: str, names: dict[str, str]) -> str:
    """A server's words without its address, its paths and its own name for the model."""
    for old, new in names.items():
        text = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _, new=new: new, text)  # type: ignore[misc]
    text = _PATH.sub("[path]", _ADDRESS.sub("[address]", text))
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "..."


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _detail(value: Any) -> str:
    """FastAPI's: a text, or a list of what is wrong where."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    found = []
    for item in value[:10]:
        if isinstance(item, dict):
            where = ".".join(str(part) for part in item.get("loc", ()) if part != "body")
            found.append(f"{where}: {item.get('msg', '')}" if where else str(item.get("msg", "")))
    return "; ".join(found)
