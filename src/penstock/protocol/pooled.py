"""What the endpoints share that give vectors and scores: embeddings, rerank, score."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.engine.request import MAX_COUNT
from penstock.errors import InvalidRequestError
from penstock.protocol.common import ModelRequest, check_model_request, check_truncation, limits
from penstock.protocol.fields import Field, Ignored, Refused

# OpenAI's limit for embeddings; texts of one request, whatever it asks of them.
MAX_TEXTS = 2048

POOLED: tuple[Field, ...] = (
    Ignored("user", str, "Names the end user; nothing depends on it."),
    Ignored("request_id", str, "Use the X-Request-Id header."),
    Refused("truncation_side", ("right",), "A text's beginning is kept."),
    Refused("mm_processor_kwargs", ({},), "The model is text-only."),
    Refused("chat_template", (), "Send texts as the model should read them."),
    Refused("chat_template_kwargs", ({},), "Send texts as the model should read them."),
)


class PooledRequest(ModelRequest, kw_only=True, forbid_unknown_fields=True):
    truncate_prompt_tokens: (
        Annotated[
            int,
            limits(
                "Cut longer texts to so many tokens; -1: what the model reads.", minimum=-1, maximum=MAX_COUNT
            ),
        ]
        | None
    ) = None


class PooledUsage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int


def check_pooled(request: PooledRequest) -> None:
    check_model_request(request)
    check_truncation(request.truncate_prompt_tokens)


def check_some(count: int, where: str) -> None:
    if not count:
        raise InvalidRequestError(f"{where} is empty; send at least one text.", param=where)


def check_count(count: int, where: str) -> None:
    """Refuse a list of none, or of more than one request takes."""
    check_some(count, where)
    if count > MAX_TEXTS:
        raise InvalidRequestError(
            f"{where} has {count} entries; a request takes at most {MAX_TEXTS}.", param=where
        )
