"""Which requests are the same to the cache, and which may be kept at all. Pure.

A key is a SHA-256 over parts that are each preceded by their length, so that no text can pass for two parts
or for another tenant's. What does not change an answer is left out; whatever is not known is left in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

_VERSION: Final = b"penstock-cache-1"

# How an answer is delivered, who is behind the tenant's key, and what is only passed on: none of it changes
# what is answered. The model is part of the key by the name of who answers.
_LEFT_OUT: Final = frozenset(
    {"model", "stream", "stream_options", "user", "service_tier", "metadata", "priority", "request_id"}
    | {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "cache_salt"}
)
# What it means, everywhere, not to say it.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "n": 1,
    "best_of": 1,
    "logprobs": False,
    "echo": False,
    "stop": [],
    "tools": [],
    "functions": [],
    "logit_bias": {},
    "response_format": {"type": "text"},
    "encoding_format": "float",
    "store": False,
}
# Servers differ in these where nothing is said, but not in what they mean to a greedy choice.
_GREEDY_DEFAULTS: Final[Mapping[str, Any]] = {"top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}

# The fields with what was said, as against how to answer.
_CONVERSATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "createChatCompletion": ("messages",),
    "createCompletion": ("prompt",),
    "createResponse": ("instructions", "input"),
    "createMessage": ("system", "messages"),
    "createEmbedding": ("input", "messages"),
    "rerank": ("query", "documents"),
    "score": ("text_1", "text_2", "queries", "documents", "data_1", "data_2"),
}
GENERATING: Final = frozenset({"createChatCompletion", "createCompletion", "createResponse", "createMessage"})
# Their streams have names and state of their own: a whole answer cannot be made of one, nor one of it.
FORM_BOUND: Final = frozenset({"createResponse", "createMessage"})

# An answer to these depends on more than the request, leaves something behind at the server, or has parts
# that cannot be given back in both forms.
_NEVER: Final = (
    *("previous_response_id", "conversation", "background", "container", "mcp_servers", "web_search_options"),
    *("prompt_logprobs", "return_token_ids", "audio", "prompt_embeds"),
)
_OWN_TOOLS: Final = frozenset({None, "function", "custom"})  # all others are run by the server
# What asks for a score or a probability wants that of its own words.
_SCORED: Final = ("logprobs", "top_logprobs", "echo", "suffix", "return_tokens_as_token_ids")


_STRING: Final = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL
)  # in JSON a colon outside one names a field


@dataclass(frozen=True, slots=True)
class Asker:
    """The part of a key that no body can say: who asks, and who would answer."""

    tenant: str
    tier: str  # of the ladder, or the model itself
    model: str = ""  # the configured model behind it
    salt: str = ""  # the caller's
    part: str = ""  # `cache_salt`: what a client keeps its own apart with
    revision: bytes = b""  # of what its configuration adds to every request


@dataclass(frozen=True, slots=True)
class Question:
    """One request as the cache sees it."""

    asker: Asker
    operation: str
    key: bytes
    deterministic: bool  # two answers to it are the same
    parts: int  # choices, vectors or the like that an answer has; 0: not known
    partition: bytes | None = None  # all but `text`; None: only the very same request is the same
    text: str = ""  # what the user says last


def question_of(
    asker: Asker, operation: str, body: Mapping[str, Any], *, stream: bool, name: str = ""
) -> Question | None:
    """`body`: the decoded JSON; `name`: what the client calls the model. None: it may not be kept at all."""
    conversation = _CONVERSATIONS.get(operation)
    if conversation is None or stateful(operation, body):
        return None
    parameters = _parameters(operation, body, conversation)
    said = {field: body[field] for field in conversation if body.get(field) is not None}
    form = (b"stream" if stream else b"whole", _utf8(name)) if operation in FORM_BOUND else ()
    try:
        around = (*_of(asker), operation.encode(), *form, _canonical(parameters))
        key = _digest(b"exact", *around, _canonical(said))
        apart = _apart(operation, said, parameters)
        partition = None if apart is None else _digest(b"partition", *around, _canonical(apart[0]))
    except (UnicodeEncodeError, RecursionError, TypeError, OverflowError):
        return None  # JSON that cannot be written again
    return Question(
        asker,
        operation,
        key,
        deterministic(operation, body),
        _parts(operation, body),
        partition,
        "" if apart is None else apart[1],
    )


def says_twice(data: bytes, body: Any) -> bool:
    """Whether an object in this JSON has two fields of one name. What was decoded has the last of them, and
    whoever answers may take the first."""
    return _STRING.sub(b"", data).count(b":") != _count_fields(body)


def _count_fields(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_count_fields, value.values()))
    return sum(map(_count_fields, value)) if isinstance(value, list) else 0


def deterministic(operation: str, body: Mapping[str, Any]) -> bool:
    """Whether the same request has the same answer: vectors and scores always have; a generation if nothing
    is drawn, or what is drawn comes from a seed."""
    if operation not in GENERATING:
        return True
    return _is(body.get("temperature"), 0) or _is(body.get("top_k"), 1) or _is_number(body.get("seed"))


def scope_name(tenant: str | None, model: str | None) -> bytes:
    """A name for all entries of a tenant, of a model, of both together, or for all there are."""
    parts = (b"" if part is None else b"=" + _utf8(part) for part in (tenant, model))
    return _digest(b"scope", *parts)[:16]


def _of(asker: Asker) -> tuple[bytes, ...]:
    texts = (asker.tenant, asker.salt, asker.part, asker.tier, asker.model)
    return (*map(_utf8, texts), asker.revision)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(kind: bytes, *parts: bytes) -> bytes:
    digest = hashlib.sha256()
    for part in (_VERSION, kind, *parts):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


_encode: Final = msgspec.json.Encoder(order="sorted").encode


def _canonical(value: Any) -> bytes:
    """JSON whose fields are in order, at every depth."""
    return _encode(value)


def _parameters(operation: str, body: Mapping[str, Any], conversation: tuple[str, ...]) -> dict[str, Any]:
    greedy = _is(body.get("temperature"), 0)
    defaults = {**_DEFAULTS, **_GREEDY_DEFAULTS} if greedy else _DEFAULTS
    found: dict[str, Any] = {}
    for field, value in body.items():
        if field in _LEFT_OUT or field in conversation or value is None:
            continue
        value = _plain(field, value)
        if field not in defaults or not _same(value, defaults[field]):
            found[field] = value
    if operation == "createChatCompletion" and "max_tokens" not in found:
        limit = found.pop("max_completion_tokens", None)
        if limit is not None:
            found["max_tokens"] = limit
    return found


def _plain(field: str, value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 0.0 is 0
    return [value] if field == "stop" and isinstance(value, str) else value


def _parts(operation: str, body: Mapping[str, Any]) -> int:
    if operation == "createEmbedding":
        return _prompts(body.get("input"))
    if operation not in ("createChatCompletion", "createCompletion"):
        return 0
    n = body.get("n")
    choices = n if isinstance(n, int) else 1
    return choices * _prompts(body.get("prompt")) if operation == "createCompletion" else choices


def _prompts(given: Any) -> int:
    """Texts or lists of ids; a list of nothing but ids is one."""
    if not isinstance(given, list):
        return int(given is not None)
    return 1 if all(isinstance(item, int) for item in given) else len(given)


def stateful(operation: str, body: Mapping[str, Any]) -> bool:
    """Whether an answer depends on more than the request, or leaves something behind at the server."""
    if any(body.get(field) not in (None, False) for field in _NEVER):
        return True
    store = body.get("store")
    # Responses are kept by the server unless one says otherwise, and may then be referred to by their id.
    if store if operation != "createResponse" else store is not False:
        return True
    tools = body.get("tools")
    if not isinstance(tools, list):
        return tools is not None
    return any(not isinstance(tool, dict) or tool.get("type") not in _OWN_TOOLS for tool in tools)


def _apart(
    operation: str, said: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[dict[str, Any], str] | None:
    """What was said without what the user says last, and that text."""
    if any(field in parameters for field in (*_SCORED, "n", "best_of")):
        return None
    rest = dict(said)
    if operation == "createCompletion":
        text = rest.pop("prompt", None)
        return (rest, text) if isinstance(text, str) and text else None
    if operation == "createResponse":
        text = rest.pop("input", None)
        return (rest, text) if isinstance(text, str) and text else None
    messages = said.get("messages") if operation in ("createChatCompletion", "createMessage") else None
    if not isinstance(messages, list) or not messages or not isinstance(messages[-1], dict):
        return None
    last = dict(messages[-1])
    text = _text(last.pop("content", None))
    if last.get("role") != "user" or not text:
        return None
    rest["messages"] = [*messages[:-1], last]
    return rest, text


def _text(content: Any) -> str | None:
    """Of a message; None if there is more to it than text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts: list[str] = []
    for part in content:
        # A part with anything else in it may mean something else.
        if not isinstance(part, dict) or part.keys() != {"type", "text"} or part["type"] != "text":
            return None
        if not isinstance(part["text"], str):
            return None
        texts.append(part["text"])
    return "\n".join(texts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is(value: Any, number: int) -> bool:
    return _is_number(value) and value == number


def _same(value: Any, default: Any) -> bool:
    """Equal, and not as False is equal to 0."""
    return isinstance(value, bool) is isinstance(default, bool) and bool(value == default)
