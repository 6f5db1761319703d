"""A second look at a cheap answer: what speaks against it, and how sure one may be that it will do.

Pure: the bytes of an answer, the request's wishes and the tokens' probabilities in, a decision out. Must not
know who asks, which tier answers, or how an answer is held back.
"""

from penstock.aio.cascade.checks import WEIGHTS, findings
from penstock.aio.cascade.consistency import TEMPERATURE, agreement, same_answer, worth_sampling
from penstock.aio.cascade.heard import Heard, ToolCall, heard_stream, heard_whole
from penstock.aio.cascade.look import Look, TokenScores, look_at, sureness
from penstock.aio.cascade.wants import FIELDS, Wants, wants_of

__all__ = [
    "FIELDS",
    "TEMPERATURE",
    "WEIGHTS",
    "Heard",
    "Look",
    "TokenScores",
    "ToolCall",
    "Wants",
    "agreement",
    "findings",
    "heard_stream",
    "heard_whole",
    "look_at",
    "same_answer",
    "sureness",
    "wants_of",
    "worth_sampling",
]
