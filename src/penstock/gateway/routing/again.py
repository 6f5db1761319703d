"""A client's request as the server asks it once more by itself: for one answer, and without any effects."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.gateway.cache.key import stateful
from penstock.gateway.inquiry import Inquiry
from penstock.gateway.routing.tier import Tier
from penstock.gateway.sizing import cap_output, smaller

MOST_TOKENS: Final = 2048  # of an answer that is asked for only to be compared
LEAST_TOKENS: Final = 256  # that it may have, however short such answers are
_TIMES: Final = 4  # as long as expected: longer ones are rare, and dear
# Tokens that a template puts around a conversation: more where it explains tools. The names and quotes of
# each message in JSON are counted, and more than its marks.
_TEMPLATE, _TOOLS = 64, 512
# How an answer is delivered, and what is kept of it.
_FORMS: Final = frozenset(
    {"stream", "stream_options", "logprobs", "top_logprobs", "n", "best_of", "store", "metadata"}
    | {"service_tier"}
)


def again(operation: str, body: Any) -> dict[str, Any] | None:
    """None for what must not be asked twice: it would do something, or be kept, or go on from something that
    only one server has."""
    if not isinstance(body, dict):
        return None
    fields = {name: value for name, value in body.items() if name not in _FORMS}
    if operation == "createResponse":
        fields["store"] = False  # without a word they are kept
    return None if stateful(operation, fields) else fields


def again_briefly(inquiry: Inquiry, expected: int) -> Inquiry | None:
    """The same with a bound on the answer, which is expected to have so many tokens. None also for what has
    several questions, or other things in it than text, of which nobody knows what they cost."""
    if inquiry.prompts != 1 or inquiry.has_media:
        return None
    fields = again(inquiry.operation, inquiry.decoded())
    if fields is None:
        return None
    bounded = Inquiry(inquiry.operation, msgspec.json.encode(fields))
    cap_output(bounded, min(MOST_TOKENS, max(LEAST_TOKENS, _TIMES * expected)))
    return bounded


def most_cost(tier: Tier, inquiry: Inquiry) -> int:
    """Picodollars that this can cost there at most. No token of any tokenizer is shorter than a byte."""
    shaped = tier.shaped(inquiry)
    prompt = len(shaped.prompt_bytes()) + (_TOOLS if "tools" in shaped.fields else _TEMPLATE)
    output = smaller(inquiry.max_tokens, tier.config.max_tokens, tier.deployment.config.max_tokens)
    assert output is not None, "it is bounded"
    return tier.price.most(smaller(prompt, tier.context) or 0, output)
