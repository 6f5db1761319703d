"""A kept answer as if it had just been given: whole, or as a stream, under an id of its own. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from penstock.gateway.cache.assemble import payloads
from penstock.gateway.cache.entry import Entry
from penstock.protocol import sse

PIECE: Final = 1024  # characters of a text in one event
_MESSAGE_FIELDS: Final = ("reasoning_content", "reasoning", "content", "refusal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What one delivery of an answer has of its own."""

    id: str  # without its prefix
    created: int  # Unix time
    model: str  # the client's name for it
    charges: dict[str, float]  # for the usage: what it cost, how long it took
    include_usage: bool = False  # of a stream
    running_usage: bool = False


def whole(entry: Entry, delivery: Delivery) -> bytes:
    """The answer in one piece."""
    answer: dict[str, Any] = msgspec.json.decode(entry.body, type=dict[str, msgspec.Raw])
    renewed = {
        "id": entry.prefix + delivery.id,
        "created": delivery.created,
        "created_at": delivery.created,
        "model": delivery.model,
    }
    answer |= {name: value for name, value in renewed.items() if name in answer}
    if "usage" in answer:
        answer["usage"] = {**msgspec.json.decode(answer["usage"]), **delivery.charges}
    return msgspec.json.encode(answer)


def stream(entry: Entry, delivery: Delivery) -> Iterator[bytes]:
    """Its events, to the mark at the end."""
    if entry.events:
        renewed = Renewed(entry.operation, delivery)
        yield renewed.feed(entry.body)
        return
    answer: dict[str, Any] = msgspec.json.decode(entry.body)
    choices, usage = answer.pop("choices"), answer.pop("usage")
    chat = entry.operation == "createChatCompletion"
    head = {
        "id": entry.prefix + delivery.id,
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": delivery.created,
        "model": delivery.model,
    }
    answer = {name: value for name, value in answer.items() if name not in head}
    parts = [part for choice in choices for part in (_chat_parts if chat else _text_parts)(choice)]
    tokens = usage.get("completion_tokens", 0)
    for number, part in enumerate(parts, 1):
        chunk = {**head, **answer, "choices": [part]}
        if delivery.running_usage:
            # How many tokens each had is not kept; they grow evenly to what they were together.
            so_far = tokens * number // len(parts)
            total = usage.get("prompt_tokens", 0) + so_far
            chunk["usage"] = {**usage, "completion_tokens": so_far, "total_tokens": total}
        elif delivery.include_usage:
            chunk["usage"] = None
        yield sse.event(chunk)
    ending = b""
    if delivery.include_usage:
        ending = sse.event({**head, **answer, "choices": [], "usage": {**usage, **delivery.charges}})
    yield ending + sse.DONE


def _chat_parts(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    index, message, logprobs = choice["index"], choice["message"], choice.get("logprobs")

    def part(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **more}

    opening = None if message.get("content") is None else ""
    yield part({"role": message.get("role", "assistant"), "content": opening})
    for name in _MESSAGE_FIELDS:
        text = message.get(name)
        if text and name == "content" and logprobs:  # they belong together, token by token
            yield part({name: text}, logprobs=logprobs)
            logprobs = None
        elif isinstance(text, str):
            for start in range(0, len(text), PIECE):
                yield part({name: text[start : start + PIECE]})
        elif text:
            yield part({name: text})
    for number, call in enumerate(message.get("tool_calls") or ()):
        yield part({"tool_calls": [{"index": number, **call}]})
    others = {
        name: value
        for name, value in message.items()
        if value and name not in ("role", "tool_calls", *_MESSAGE_FIELDS)
    }
    if others:
        yield part(others)
    more = {name: value for name, value in choice.items() if name not in ("index", "message", "logprobs")}
    yield part({}, **({"logprobs": logprobs} if logprobs else {}), **more)


def _text_parts(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    text, logprobs = choice["text"], choice.get("logprobs")
    step = PIECE if logprobs is None else len(text)
    for start in range(0, len(text), step):
        yield {
            "index": choice["index"],
            "text": text[start : start + step],
            "logprobs": logprobs,
            "finish_reason": None,
        }
    yield {**choice, "text": "", "logprobs": None}


class Renewed:
    """Another's events, as they come, under one's own id and name, with one's own usage."""

    def __init__(self, operation: str, delivery: Delivery) -> None:
        self._named = not operation.endswith("Completion")
        self.delivery = delivery
        self._pending = b""
        self._old = b""  # an id that is replaced wherever it stands
        self._new = b""
        self._last: dict[str, Any] = {}  # the head of chunks so far

    def feed(self, data: bytes) -> bytes:
        """Whole events of what has come so far."""
        events, blank, self._pending = (self._pending + data).rpartition(b"\n\n")
        if not blank:
            return b""
        renew = self._event if self._named else self._chunk
        return b"".join([renew(event) for event in events.split(b"\n\n")])

    def closing(self, usage: dict[str, Any]) -> bytes:
        """Behind the last event: what usage the client asked for, and the mark at the end."""
        if self._named:
            return b""
        ending = b""
        if self.delivery.include_usage:
            usage = {**usage, **self.delivery.charges}
            ending = sse.event({**self._last, "choices": [], "usage": usage})
        return ending + sse.DONE

    def _chunk(self, event: bytes) -> bytes:
        out = b""
        for payload in payloads(event):
            if not payload.startswith(b"{"):
                continue  # the mark at the end, which is `closing`'s
            chunk: dict[str, Any] = msgspec.json.decode(payload)
            if not chunk.get("choices"):
                continue
            chunk.pop("usage", None)
            self._rename(chunk)
            self._last = {name: value for name, value in chunk.items() if name != "choices"}
            if self.delivery.include_usage:
                chunk["usage"] = None
            out += sse.event(chunk)
        return out

    def _rename(self, chunk: dict[str, Any]) -> None:
        head, mark, _ = str(chunk.get("id", "")).partition("-")
        chunk["id"] = head + mark + self.delivery.id
        chunk["created"], chunk["model"] = self.delivery.created, self.delivery.model

    def _event(self, event: bytes) -> bytes:
        if not self._old:
            self._learn(event)
        if self._old:
            event = event.replace(self._old, self._new)
        if b'"latency_ms"' in event:
            event = self._charged(event)
        return event + b"\n\n"

    def _learn(self, event: bytes) -> None:
        for payload in payloads(event):
            told: Any = msgspec.json.decode(payload)
            inner = told.get("message") or told.get("response") if isinstance(told, dict) else None
            id = inner.get("id") if isinstance(inner, dict) else None
            if isinstance(id, str) and "_" in id:
                self._old = msgspec.json.encode(id)
                self._new = msgspec.json.encode(id.partition("_")[0] + "_" + self.delivery.id)

    def _charged(self, event: bytes) -> bytes:
        for payload in payloads(event):
            told: Any = msgspec.json.decode(payload)
            holder = told.get("response", told)
            if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
                for name in ("cost", "latency_ms"):
                    holder["usage"].pop(name, None)
                holder["usage"].update(self.delivery.charges)
                event = event.replace(payload, msgspec.json.encode(told))
        return event
