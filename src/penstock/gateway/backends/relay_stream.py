"""Streams of chat and text completions: events in, events out, changed no more than they must be.

Pure: bytes as they come from the server go in, bytes for the client and their number of tokens come out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.gateway.backends.presets import RunningUsage
from penstock.gateway.backends.relay_errors import failed, garbage, words
from penstock.gateway.backends.relay_names import Renaming
from penstock.gateway.backends.relay_usage import Reported, encode
from penstock.protocol import sse
from penstock.protocol.errors import HTTPError
from penstock.protocol.shapes import UsageCount

MAX_EVENT_BYTES: Final = 8 * 1024 * 1024

# Within a JSON string its quotes would be escaped, so this is always a field. Details are one object deep.
# The first is how servers write it, and twice as fast as one that also finds the rest.
_USAGE: Final = re.compile(rb',"usage":(?:null|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')
_ANY_USAGE: Final = re.compile(
    rb',\s*"usage"\s*:\s*(?:null|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})|'
    rb'"usage"\s*:\s*(?:null|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})\s*,'
)


_ABSENT: Final = msgspec.Raw(b"")


class _Delta(msgspec.Struct, gc=False):
    content: str | list[msgspec.Raw] | None = None  # a text, or parts
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: msgspec.Raw = _ABSENT


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    finish_reason: str | None = None
    delta: _Delta | None = None
    text: str | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Reported | None = None
    error: msgspec.Raw = _ABSENT


_decode: Final = msgspec.json.Decoder(_Chunk).decode
_NOTHING: Final = (b"", b"null", b"[]")


class ChatStream:
    """One stream. After each `feed`: `done` when its end has come, `error` when the server reported one."""

    __slots__ = (
        "_by_choice",
        "_charged",
        "_choices",
        "_last",
        "_name",
        "_pending",
        "_prompt",
        "_rename",
        "_reported",
        "_running",
        "_wants_running",
        "_wants_usage",
        "counted",
        "done",
        "error",
        "finished",
        "names",
    )

    def __init__(
        self,
        *,
        name: str,
        names: dict[str, str],
        running: RunningUsage,
        wants_usage: bool,
        wants_running: bool,
        choices: int,
        prompt: int,
        charged: Callable[[UsageCount], None],
    ) -> None:
        """`name`: the client's for the model. `choices`: how many there will be, if that is known to be one.
        `prompt`: its tokens, as far as we know; used if the server does not tell.

        `charged` is called with the usage before it is written, to note what it costs.
        """
        self._name = name
        self._rename = Renaming(name)
        self._running = running
        self._wants_usage = wants_usage
        self._wants_running = wants_running
        self._choices = choices
        self._prompt = prompt
        self._charged = charged
        self._by_choice: dict[int, int] = {}
        self._pending = b""
        self._last = b""  # the JSON of the last chunk, whose id and time the usage repeats
        self.names = names
        self.counted = 0  # tokens handed out so far
        self.finished = 0  # choices
        self._reported: Reported | None = None  # what the server last said of the whole request
        self.done = False
        self.error: HTTPError | None = None

    def feed(self, data: bytes) -> tuple[bytes, int]:
        """Events for the client, all that are whole by now, and the tokens in them."""
        if self._pending:
            data = self._pending + data
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        if data.endswith(b"\n\n"):
            self._pending = b""
        else:
            end = data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0
            self._pending = data[end:]
            if len(self._pending) > MAX_EVENT_BYTES:
                self.error = garbage(f"an event has more than {MAX_EVENT_BYTES} bytes")
            if not end:
                return b"", 0
            data = data[:end]
        before = self.counted
        kept: list[bytes] = []
        events = data.split(b"\n\n")
        events.pop()  # nothing comes after the last blank line
        for event in events:
            if event.startswith(b"data: {"):
                keep = self._chunk(event[6:])
            else:
                keep = self._odd(event)
            if keep:
                kept.append(event)
            if self.done or self.error is not None:
                break
        if len(kept) < len(events):
            data = b"".join([event + b"\n\n" for event in kept])
        if data:
            data = self._rename(data)
            if not self._wants_running and b'"usage"' in data:
                data = _USAGE.sub(b"", data)
                if b'"usage"' in data:
                    data = _ANY_USAGE.sub(b"", data)
        if self.done:
            data += self._ending()
        return data, self.counted - before

    @property
    def usage(self) -> UsageCount | None:
        """As the server last said, but never less than has been handed out."""
        if self._reported is None:
            return None
        usage = self._reported.count(UsageCount(self._prompt, self.counted))
        usage.completion = max(usage.completion, self.counted)
        return usage

    def close(self) -> tuple[bytes, int]:
        """The connection has ended. What was finished only lacks its end mark; all else is an error."""
        if not self.done and self.error is None:
            if self.finished < max(1, self._choices):
                self.error = garbage("its stream broke off")
                return b"", 0
            before = self.counted
            self.done = True
            return self._ending(), self.counted - before
        return b"", 0

    def _chunk(self, payload: bytes) -> bool:
        """Read one chunk; whether the client gets it."""
        try:
            return self._read(payload, _decode(payload))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.error = garbage("an event of its stream is not the JSON of a chunk")
            return False

    def _read(self, payload: bytes, chunk: _Chunk) -> bool:
        choices = chunk.choices
        if choices:
            self._last = payload
            tokens = 0
            for choice in choices:
                if choice.finish_reason is not None:
                    self.finished += 1
                tokens += _has_content(choice)
            if tokens < len(choices):
                tokens += _of_other_kinds(payload)
            reported = chunk.usage
            if reported is not None:
                completion = reported.completion
                if self._choices == 1:
                    self._reported = reported
                    if completion:
                        tokens = max(0, completion - self.counted)
                elif self._running != "none" and completion:
                    tokens = self._several(choices[0].index, completion)
            self.counted += tokens
            return True
        if bytes(chunk.error) not in _NOTHING:
            self._fail(_said(payload))
            return False
        if chunk.usage is not None:
            self._reported = chunk.usage
        elif choices is None:
            self.error = garbage("an event of its stream is not the JSON of a chunk")
        # Without choices: the usage, which is written at the end, or a preface of no use (content filters).
        return False

    def _several(self, index: int, completion: int) -> int:
        """Tokens since the last chunk, where the running usage is one choice's, or all choices' together."""
        if self._running == "total":
            return max(0, completion - self.counted)
        before = self._by_choice.get(index, 0)
        self._by_choice[index] = max(before, completion)
        return max(0, completion - before)

    def _odd(self, event: bytes) -> bool:
        """Whatever does not begin as a chunk does; whether the client gets it as it is."""
        lines = event.split(b"\n")
        fields = [line for line in lines if line and not line.startswith(b":")]
        if not fields:
            return bool(self._last)  # a sign of life; the stream itself has not begun with it
        payload = b"\n".join(line[5:].lstrip(b" ") for line in fields if line.startswith(b"data:"))
        if payload == b"[DONE]":
            self.done = True
            return False
        named_error = any(line.startswith(b"error:") for line in fields)
        if named_error or (payload.startswith(b"{") and any(line == b"event: error" for line in fields)):
            content = payload or next(line[6:] for line in fields if line.startswith(b"error:"))
            self._fail(_said(content))
            return False
        if payload.startswith(b"{"):
            return self._chunk(payload)
        self.error = garbage("an event of its stream is not the JSON of a chunk")
        return False

    def _fail(self, content: Any) -> None:
        said = words(content)
        error = content.get("error", content) if isinstance(content, dict) else None
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        if "invalid_request" in said.type or "BadRequest" in said.type:
            status = 400
        self.error = failed(status, said, self.names)

    def _ending(self) -> bytes:
        usage = self.usage
        if usage is not None:
            self.counted = usage.completion
        if not self._wants_usage:
            return sse.DONE
        if usage is None:
            usage = UsageCount(self._prompt, self.counted)
        self._charged(usage)
        return self._usage_event(usage) + sse.DONE

    def _usage_event(self, usage: UsageCount) -> bytes:
        head = _header(self._last) if self._last else _Header()
        # Written here, so not in the server's own spelling that `_rename` knows.
        head.model, head.choices, head.usage = self._name, [], usage.message()
        return b"data: " + encode(head) + b"\n\n"


class _Header(msgspec.Struct, omit_defaults=True):
    """What a chunk repeats of its stream."""

    id: str = ""
    object: str = ""
    created: int = 0
    model: str = ""
    system_fingerprint: str | None = None
    choices: list[Any] | None = None
    usage: Any = None


class _AnyChoice(msgspec.Struct):
    delta: dict[str, Any] | None = None


class _AnyChunk(msgspec.Struct):
    choices: list[_AnyChoice]


_any_chunk: Final = msgspec.json.Decoder(_AnyChunk).decode
_KNOWN: Final = frozenset({"role", *_Delta.__struct_fields__})
_header: Final = msgspec.json.Decoder(_Header).decode


def _said(content: bytes) -> Any:
    """The JSON of an error; None for what is none."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _has_content(choice: _Choice) -> bool:
    delta = choice.delta
    if delta is None:
        return bool(choice.text)
    return bool(
        delta.content
        or delta.reasoning_content
        or delta.reasoning
        or (delta.tool_calls is not _ABSENT and bytes(delta.tool_calls) not in _NOTHING)
        or delta.refusal
    )


def _of_other_kinds(payload: bytes) -> int:
    """Choices whose delta has only content that is not known here: a function call, audio, and what is yet to
    come. Whatever it is, somebody generated it."""
    deltas = [choice.delta or {} for choice in _any_chunk(payload).choices]
    others = ({name for name, value in delta.items() if value} - {"role"} for delta in deltas)
    return sum(bool(names) and names.isdisjoint(_KNOWN) for names in others)
