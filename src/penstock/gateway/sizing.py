"""Right-sizing: how long an answer and a prompt may be, and which turns a long chat can do without.

Pure. The caller counts tokens, exactly or by estimate; what is cut is said in the answer's headers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.gateway.inquiry import OUTPUT_LIMITS, Inquiry
from penstock.protocol.errors import HTTPError
from penstock.protocol.estimate import BYTES_PER_TOKEN

# Where nobody says how long an answer may be, so much is set aside for it: in the queue, in limits, in
# budgets. What it really took is settled afterwards.
EXPECTED_OUTPUT: Final = 1024
_KEPT_ROLES: Final = ("system", "developer")


def smaller(*limits: int | None) -> int | None:
    """The least of the limits that there are."""
    given = [limit for limit in limits if limit is not None]
    return min(given) if given else None


def cap_output(inquiry: Inquiry, cap: int | None) -> bool:
    """Lower what the request asks for to `cap`, and ask for that where it says nothing. Whether it did."""
    names = OUTPUT_LIMITS.get(inquiry.operation)
    asked = inquiry.max_tokens
    if cap is None or names is None or (asked is not None and asked <= cap):
        return False
    given = [name for name in names if name in inquiry.fields]
    for name in given or names[-1:]:
        inquiry.set(name, cap)
    return True


def estimated_tokens(inquiry: Inquiry) -> int:
    """Tokens of a prompt whose tokenizer is not known here."""
    return max(1, len(inquiry.prompt_bytes()) // BYTES_PER_TOKEN)


def over_budget(tokens: int, budget: int, *, trims: bool) -> HTTPError:
    advice = "even without its earlier turns; shorten the last one" if trims else "shorten it"
    return HTTPError(
        400,
        f"The prompt has {tokens} tokens, and the budget is {budget}: {advice}.",
        code="prompt_budget_exceeded",
        param="messages",
    )


def trimmed(
    messages: Sequence[msgspec.Raw], budget: int, count: Callable[[list[msgspec.Raw]], int]
) -> list[msgspec.Raw] | None:
    """The messages without so many of the oldest turns that the rest is within `budget`; None if even the
    last turn alone is not.

    A turn is what a user said and everything up to the next thing a user says: so a tool's result is never
    parted from its call. What the system says stays.
    """
    turns, kept = _turns(messages)
    if len(turns) < 2:
        return None

    def without(dropped: int) -> list[msgspec.Raw]:
        gone = {index for turn in turns[:dropped] for index in turn}
        return [message for index, message in enumerate(messages) if index in kept or index not in gone]

    low, high = 1, len(turns) - 1  # the fewest turns to leave out, by halving: counting is expensive
    if count(without(high)) > budget:
        return None
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
        message: Any = msgspec.json.decode(raw)
        role = message.get("role") if isinstance(message, dict) else None
        if role in _KEPT_ROLES:
            kept.add(index)
        elif role == "user" or not turns:
            turns.append([index])
        else:
            turns[-1].append(index)
    return turns, kept
