"""What is kept of an answer, and which answers are: only whole ones, of which every part came to its end.

The normal form is the JSON of a whole answer. What differs between two deliveries of it (id, time, the
client's name for the model, what it cost and how long it took) is left out and put in again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.protocol.shapes import UsageCount

MAX_ENTRY_BYTES: Final = 4 << 20  # a longer answer is not kept

# How each kind of answer says that it came to its end by itself. What a filter cut is nobody's answer, and
# what is "length" is as long as the request, which is in the key, allows.
_CHOICE_ENDS: Final = frozenset({"stop", "length", "tool_calls", "function_call"})
_MESSAGE_ENDS: Final = frozenset({"end_turn", "stop_sequence", "max_tokens", "tool_use"})
_LISTS: Final[Mapping[str, str]] = {"createEmbedding": "data", "rerank": "results", "score": "data"}
_RENEWED: Final = ("id", "created", "created_at", "model")  # null in what is kept, if the answer had them
_CHARGES: Final = ("cost", "latency_ms")


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """Tokens of an answer, when it was computed."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int | None = None

    @classmethod
    def of(cls, usage: UsageCount) -> Counted:
        return cls(usage.prompt, usage.completion, usage.cached, usage.reasoning)

    def usage(self) -> UsageCount:
        return UsageCount(self.prompt, self.completion, self.cached, self.reasoning)


class Entry(msgspec.Struct, frozen=True, array_like=True):
    operation: str
    body: bytes  # the JSON of a whole answer, or the events of a stream
    usage: Counted
    model: str  # as the server calls it that answered
    created: float  # Unix time
    prefix: str = ""  # of ids of such answers; empty: they have none
    events: bool = False  # `body` is a stream that can only be given as one
    ended: bool = False  # of itself: neither cut off nor with a call of a tool

    @property
    def size(self) -> int:
        """Bytes, about."""
        return len(self.body) + 256


def entry_of_whole(
    operation: str, body: bytes, usage: UsageCount, model: str, now: float, *, parts: int
) -> Entry | None:
    """None: it is not kept. `parts`: how many choices, vectors or the like there must be; 0: not known."""
    if len(body) > MAX_ENTRY_BYTES:
        return None
    try:
        answer: Any = _numbers(operation, body) if operation in _LISTS else msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return entry_of_answer(operation, answer, usage, model, now, parts=parts)


def _numbers(operation: str, body: bytes) -> dict[str, Any]:
    """Long lists of numbers are only counted: each item stays as it came."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    name = _LISTS[operation]
    answer: dict[str, Any] = {field: msgspec.json.decode(fields[field]) for field in fields if field != name}
    if bytes(fields.get(name, b"")).startswith(b"["):
        answer[name] = msgspec.json.decode(fields[name], type=list[msgspec.Raw])
    return answer


def entry_of_answer(
    operation: str, answer: Any, usage: UsageCount, model: str, now: float, *, parts: int
) -> Entry | None:
    if not isinstance(answer, dict) or answer.get("error") is not None:
        return None
    ended = _ended(operation, answer, parts)
    if ended is None:
        return None
    id = answer.get("id")
    kept = {name: None if name in _RENEWED else value for name, value in answer.items()}
    told = kept.get("usage")
    if isinstance(told, dict):
        kept["usage"] = {name: value for name, value in told.items() if name not in _CHARGES}
    elif operation.endswith("Completion"):
        kept["usage"] = msgspec.to_builtins(usage.message())
    prefix = _prefix(id) if isinstance(id, str) else ""
    return Entry(operation, msgspec.json.encode(kept), Counted.of(usage), model, now, prefix, ended=ended)


def all_ended(operation: str, reasons: Sequence[Any]) -> bool | None:
    """None: one has not come to its end. Else whether all ended of themselves."""
    ends = _MESSAGE_ENDS if operation == "createMessage" else _CHOICE_ENDS
    if not all(isinstance(reason, str) and reason in ends for reason in reasons):
        return None
    return all(reason in ("stop", "end_turn", "stop_sequence") for reason in reasons)


def _ended(operation: str, answer: Mapping[str, Any], parts: int) -> bool | None:
    """None: it is not whole."""
    if operation == "createMessage":
        return all_ended(operation, [answer.get("stop_reason")]) if answer.get("content") else None
    if operation == "createResponse":
        return True if answer.get("status") == "completed" and answer.get("output") else None
    found = answer.get(_LISTS.get(operation, "choices"))
    if not isinstance(found, list) or not found or (parts and len(found) != parts):
        return None
    if operation in _LISTS:
        return True
    if not all(isinstance(choice, dict) for choice in found):
        return None
    if sorted(str(choice.get("index")) for choice in found) != sorted(map(str, range(len(found)))):
        return None
    if not all(map(_says_something, found)):
        return None
    return all_ended(operation, [choice.get("finish_reason") for choice in found])


def _says_something(choice: Mapping[str, Any]) -> bool:
    """An empty answer is soon computed again, and more often a fault than an answer."""
    message = choice.get("message")
    if isinstance(message, dict):
        return any(value for name, value in message.items() if name not in ("role", "refusal"))
    return bool(choice.get("text"))


def _prefix(id: str) -> str:
    """`chatcmpl-` of `chatcmpl-9a3f`."""
    for mark in "-_":
        head, found, _ = id.partition(mark)
        if found and len(head) <= 16 and head.isascii():
            return head + mark
    return "answer-"
