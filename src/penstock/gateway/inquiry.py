"""What the front door must know of a request's body, whoever will answer it: read once, changed rarely.

The rest of the body stays as it came. A server behind the gateway judges its own fields; an engine of
ours parses the whole body itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from penstock.errors import InvalidRequestError
from penstock.protocol.decode import decode

# What each operation calls the most tokens of an answer.
OUTPUT_LIMITS: Final[dict[str, tuple[str, ...]]] = {
    "createChatCompletion": ("max_completion_tokens", "max_tokens"),
    "createCompletion": ("max_tokens",),
    "createResponse": ("max_output_tokens",),
    "createMessage": ("max_tokens",),
}
# Where each operation's prompt is.
PROMPTS: Final[dict[str, tuple[str, ...]]] = {
    "createChatCompletion": ("messages",),
    "createCompletion": ("prompt",),
    "createResponse": ("instructions", "input"),
    "createMessage": ("system", "messages"),
    "createEmbedding": ("input", "messages"),
    "rerank": ("query", "documents"),
    "score": ("text_1", "text_2", "queries", "documents", "data_1", "data_2"),
}
# What goes into a prompt beside it, and comes before it there.
SCHEMAS: Final[dict[str, tuple[str, ...]]] = {
    "createChatCompletion": ("tools", "functions", "response_format"),
    "createResponse": ("tools", "text"),
    "createMessage": ("tools",),
}
# The types of parts that are no text, which are also the names of the fields that hold them. What of a body
# could be one of these, spelled with escapes perhaps, is looked at closely.
MEDIA: Final = frozenset(
    {"image_url", "input_image", "image", "video_url", "input_video", "video"}
    | {"input_audio", "audio_url", "audio", "input_file", "file", "document"}
)
_HINTS: Final = (b"image", b"video", b"audio", b"file", b"document", b"\\u")
MAX_CHOICES: Final = 1024  # of one request, wherever it goes
# Names by which other gateways let a client say whom to ask, and with which key. A server behind this
# one might be such a gateway.
_NOT_THE_CLIENTS: Final = ("api_base", "base_url", "api_key")
_ABSENT: Final = msgspec.Raw(b"")

# A negative number means "without end" to some servers: no cap would hold.
Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _Essentials(msgspec.Struct):
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    best_of: int | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    max_output_tokens: Tokens | None = None
    service_tier: str | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    cache_salt: str | None = None
    api_base: msgspec.Raw = _ABSENT
    base_url: msgspec.Raw = _ABSENT
    api_key: msgspec.Raw = _ABSENT


_essentials: Final = msgspec.json.Decoder(_Essentials)
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items: Final = msgspec.json.Decoder(list[msgspec.Raw])
_anything: Final = msgspec.json.Decoder()


class Inquiry:
    """One body. `encode` gives back the very bytes that came, unless something was changed."""

    __slots__ = ("_body", "_essentials", "_fields", "operation")

    def __init__(self, operation: str, body: bytes) -> None:
        """Raises InvalidRequestError for what is no JSON object or has a field of the wrong type."""
        self.operation = operation
        self._body = body
        self._essentials = decode(_essentials, body)
        self._fields: dict[str, msgspec.Raw] | None = None
        if not body.isascii():
            _check_encoding(body)  # what is not looked at is not decoded either
        for name in _NOT_THE_CLIENTS:
            if getattr(self._essentials, name) is not _ABSENT:
                raise InvalidRequestError(
                    f"{name} is not taken from a request: where a model is asked, and with which key, is "
                    "the configuration's to say.",
                    param=name,
                    code="unknown_parameter",
                )
        for name, value in (("n", self.n), ("best_of", self._essentials.best_of)):
            if value is not None and not 1 <= value <= MAX_CHOICES:
                message = f"{name} must be between 1 and {MAX_CHOICES}, got {value}."
                raise InvalidRequestError(message, param=name)
        if self._essentials.stream_options is not None and not self.stream:
            raise InvalidRequestError(
                "stream_options is only allowed with stream: true.", param="stream_options"
            )

    @property
    def model(self) -> str | None:
        return self._essentials.model

    @property
    def stream(self) -> bool:
        return bool(self._essentials.stream)

    @property
    def include_usage(self) -> bool:
        """Whether the client wants a stream to end with its usage."""
        options = self._essentials.stream_options
        return bool(options and options.include_usage)

    @property
    def running_usage(self) -> bool:
        """Whether the client wants the usage so far in every chunk."""
        options = self._essentials.stream_options
        return bool(options and options.include_usage and options.continuous_usage_stats)

    @property
    def n(self) -> int:
        n = self._essentials.n
        return 1 if n is None else n

    @property
    def limits(self) -> dict[str, int]:
        """What the body says of the most tokens of one choice, by each name it has for that."""
        names = OUTPUT_LIMITS.get(self.operation, ())
        given = ((name, getattr(self._essentials, name)) for name in names)
        return {name: value for name, value in given if value is not None}

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of one choice, as asked for by any of its names; None: not limited."""
        return max(self.limits.values(), default=None)

    @property
    def prompt_field(self) -> str | None:
        """The field to name when the prompt is to blame."""
        names = PROMPTS.get(self.operation, ())
        return next((name for name in reversed(names) if name in self.fields), None)

    @property
    def service_tier(self) -> str | None:
        return self._essentials.service_tier

    @property
    def session(self) -> str | None:
        """What the body itself says belongs together."""
        return self._essentials.prompt_cache_key or self._essentials.user

    @property
    def cache_salt(self) -> str:
        return self._essentials.cache_salt or ""

    @property
    def fields(self) -> dict[str, msgspec.Raw]:
        """The body's top level, each value as the bytes it came in. Change it with `set` only."""
        if self._fields is None:
            self._fields = decode(_fields, self._body)
        return self._fields

    @property
    def size(self) -> int:
        """Bytes of the body as it came."""
        return len(self._body)

    def prompt_bytes(self) -> bytes:
        """The JSON text of the prompt: its beginning is the same for prompts that begin alike."""
        names = (*SCHEMAS.get(self.operation, ()), *PROMPTS.get(self.operation, ()))
        return b"\n".join(bytes(self.fields[name]) for name in names if name in self.fields)

    @property
    def prompts(self) -> int:
        """Prompts to be answered, of which a body for completions may have several."""
        if self.operation != "createCompletion":
            return 1
        return max(
            1, sum(_prompts(bytes(self.fields.get(name, b""))) for name in ("prompt", "prompt_embeds"))
        )

    @property
    def choices(self) -> int:
        """Answers to be made: of each prompt `n`, or `best_of` to choose them from."""
        return self.prompts * max(self.n, self._essentials.best_of or 1)

    @property
    def has_media(self) -> bool:
        """Whether a part of the prompt is an image or another thing that is no text, which a text that only
        speaks of one is not."""
        body = self._body
        if not any(hint in body for hint in _HINTS):
            return False
        names = PROMPTS.get(self.operation, ())
        given = [decode(_anything, bytes(self.fields[name])) for name in names if name in self.fields]
        return any(map(_has_media, given))

    def decoded(self) -> Any:
        """All of it, as plain values."""
        return decode(_anything, self._body)

    def set(self, name: str, value: Any) -> None:
        """Give a field another value, for whoever will answer; None takes it out."""
        self._replace(self.fields, name, value)
        self._body = msgspec.json.encode(self.fields)
        self._essentials = _essentials.decode(self._body)

    def encode(self, changes: Mapping[str, Any] | None = None) -> bytes:
        """The body as it came; or for somebody else to read, with these fields changed (None: left out).

        That one gets every field once: of a name given twice it might take the first, which nobody here saw.
        """
        if changes is None:
            return self._body
        fields = dict(self.fields)
        for name, value in changes.items():
            self._replace(fields, name, value)
        return msgspec.json.encode(fields)

    @staticmethod
    def _replace(fields: dict[str, msgspec.Raw], name: str, value: Any) -> None:
        if value is None:
            fields.pop(name, None)
        else:
            fields[name] = msgspec.Raw(msgspec.json.encode(value))


def _check_encoding(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError:
        raise InvalidRequestError("The body is not valid UTF-8; JSON must be sent as UTF-8.") from None


def _prompts(given: bytes) -> int:
    """How many a field holds. Only a list of nothing but ids is one; in another each item is one."""
    if not given.startswith(b"["):
        return int(given not in (b"", b"null"))
    items = decode(_items, given)
    return 1 if all(bytes(item).isdigit() for item in items) else len(items)


def _has_media(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_media, value))
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if (isinstance(kind, str) and kind in MEDIA) or not MEDIA.isdisjoint(value):
        return True
    return any(_has_media(item) for item in value.values() if isinstance(item, list | dict))
