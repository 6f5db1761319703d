"""An unstreamed answer: is it one, what did it use, and under which name does the client see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from penstock.gateway.backends.relay_errors import garbage
from penstock.gateway.backends.relay_names import renamed
from penstock.gateway.backends.relay_usage import Reported, encode
from penstock.protocol.estimate import BYTES_PER_TOKEN
from penstock.protocol.shapes import UsageCount

# The field by which each operation's answer is known.
_MARKS: Final[dict[str, str]] = {
    "createChatCompletion": "choices",
    "createCompletion": "choices",
    "createEmbedding": "data",
    "rerank": "results",
    "score": "data",
    "createResponse": "output",
    "createMessage": "content",
}


_ABSENT: Final = msgspec.Raw(b"")


class _Head(msgspec.Struct):
    """What is looked at; the rest is only checked to be JSON. All marks are lists."""

    choices: msgspec.Raw = _ABSENT
    data: msgspec.Raw = _ABSENT
    results: msgspec.Raw = _ABSENT
    output: msgspec.Raw = _ABSENT
    content: msgspec.Raw = _ABSENT
    usage: msgspec.Raw = _ABSENT


_head: Final = msgspec.json.Decoder(_Head)
_reported: Final = msgspec.json.Decoder(Reported)


@dataclass(frozen=True, slots=True)
class Whole:
    body: bytes
    usage: UsageCount


def read_answer(operation: str, body: bytes, name: str, prompt: int) -> Whole:
    """BackendError for what is no answer to `operation`. `prompt`: tokens, if the server does not tell."""
    try:
        head = _head.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise garbage("what came is not the JSON of an answer") from None
    found = bytes(getattr(head, _MARKS[operation]))
    if not found.startswith(b"["):
        raise garbage(f"what came has no list of {_MARKS[operation]}")
    told = bytes(head.usage)
    guess = _guess(operation, found, prompt)
    if told in (b"", b"null"):
        return Whole(renamed(body, name), guess)
    try:
        usage = _reported.decode(told).count(guess)
    except msgspec.DecodeError:
        raise garbage("its usage has no counts of tokens") from None
    if b'"latency_ms"' in told:  # a gateway like this one: what it charges and how long it took is not ours
        body = body.replace(told, encode(usage.message()))
    return Whole(renamed(body, name), usage)


def _guess(operation: str, found: bytes, prompt: int) -> UsageCount:
    """For what a server does not report: the bytes of what it generated, its JSON included."""
    generated = operation not in ("createEmbedding", "rerank", "score")
    return UsageCount(prompt, -(-len(found) // BYTES_PER_TOKEN) if generated else 0)
