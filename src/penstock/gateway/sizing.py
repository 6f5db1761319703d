"""Right-sizing: how long an answer and a prompt may be, and which turns a long chat can do without.

Pure. The caller counts tokens, exactly or by estimate; what is cut is said in the answer's headers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.gateway.inquiry import OUTPUT_LIMITS, Inquiry
from penstock.protocol.decode import decode
from penstock.protocol.errors import HTTPError
from penstock.protocol.estimate import BYTES_PER_TOKEN

# Where nobody says how long an answer may be, so much is set aside for it: in the queue, in limits, in
# budgets. What it really took is settled afterwards.
EXPECTED_OUTPUT: Final = 1024
_KEPT_ROLES: Final = ("system", "developer")
# Where token ids may stand in place of a text.
_IDS: Final = {"createCompletion": "prompt", "createEmbedding": "input"}
_items: Final = msgspec.json.Decoder(list[msgspec.Raw])
_message: Final = msgspec.json.Decoder()


def smaller(*limits: int | None) -> int | None:
    """The least of the limits that there are."""
    given = [limit for limit in limits if limit is not None]
    return min(given) if given else None


def cap_output(inquiry: Inquiry, cap: int | None) -> bool:
    """Lower what the request asks for to `cap`, and ask for that where it says nothing. Whether it did.

    Every name is lowered: which of several a server obeys is its own affair.
    """
    names = OUTPUT_LIMITS.get(inquiry.operation)
    if cap is None or names is None:
        return False
    given = inquiry.limits
    lowered = [name for name, asked in given.items() if asked > cap] if given else names[-1:]
    for name in lowered:
        inquiry.set(name, cap)
    return bool(lowered)


def estimated_tokens(inquiry: Inquiry) -> int:
    """Tokens of a prompt whose tokenizer is not known here. Those that came as ids are counted."""
    given = bytes(inquiry.fields.get(_IDS.get(inquiry.operation, ""), b""))
    if given.startswith(b"["):
        return max(1, _tokens(given))
    return max(1, len(inquiry.prompt_bytes()) // BYTES_PER_TOKEN)


def _tokens(prompts: bytes) -> int:
    """Of one prompt's ids, or of a list of prompts."""
    items = [bytes(item) for item in decode(_items, prompts)]
    return sum(1 if item.isdigit() else _of_one(item) for item in items)


def _of_one(prompt: bytes) -> int:
    ids = decode(_items, prompt) if prompt.startswith(b"[") else []
    if ids and all(bytes(item).isdigit() for item in ids):
        return len(ids)
    return -(-len(prompt) // BYTES_PER_TOKEN)


def over_budget(tokens: int, budget: int, *, trims: bool, field: str | None) -> HTTPError:
    advice = "even without its earlier turns; shorten the last one" if trims else "shorten it"
    return HTTPError(
        400,
        f"The prompt has {tokens} tokens, and the budget is {budget}: {advice}.",
        code="prompt_budget_exceeded",
        param=field,
    )


def trimmed(
    messages: Sequence[msgspec.Raw], budget: int, count: Callable[[list[msgspec.Raw]], int]
) -> list[msgspec.Raw] | None:
    """The messages without as few of the oldest turns as it takes to be within `budget`, or without all but
    the last if none of that is enough; None if there is only one turn.

    A turn is what a user said and everything up to the next thing a user says: so a tool's result is never
    parted from its call. What the system says stays. Raises InvalidRequestError for what is no message.
    """
    turns, kept = _turns(messages)
    if len(turns) < 2:
        return None

    def without(dropped: int) -> list[msgspec.Raw]:
        gone = {index for turn in turns[:dropped] for index in turn}
        return [message for index, message in enumerate(messages) if index in kept or index not in gone]

    low, high = 1, len(turns) - 1  # the fewest turns to leave out, by halving: counting is expensive
    while low < high:
        middle = (low + high) // 2
        if count(without(middle)) <= budget:
            high = middle
        else:
            low = middle + 1
    return without(low)


def _turns(messages: Sequence[msgspec.Raw]) -> tuple[list[list[int]], set[int]]:
    """The positions of each turn's messages, and of those that belong to none."""
    turns: list[list[int]] = []
    kept: set[int] = set()
    for index, raw in enumerate(messages):
        message: Any = decode(_message, bytes(raw))
        role = message.get("role") if isinstance(message, dict) else None
        if role in _KEPT_ROLES:
            kept.add(index)
        elif role == "user" or not turns:
            turns.append([index])
        else:
            turns[-1].append(index)
    return turns, kept
