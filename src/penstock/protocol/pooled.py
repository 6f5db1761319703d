"""What the endpoints share that give vectors and scores: embeddings, rerank, score."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.engine.request import MAX_COUNT, MAX_PRIORITY
from penstock.errors import InvalidRequestError
from penstock.protocol.decode import shown
from penstock.protocol.fields import Field, Ignored, Refused
from penstock.protocol.generation import MAX_SALT_CHARACTERS, limits

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


class PooledRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(description="A name from /v1/models; absent: the served model.")] | None = None
    truncate_prompt_tokens: (
        Annotated[
            int,
            limits(
                "Cut longer texts to so many tokens; -1: what the model reads.", minimum=-1, maximum=MAX_COUNT
            ),
        ]
        | None
    ) = None
    priority: (
        Annotated[int, limits("Lower is earlier.", minimum=-MAX_PRIORITY, maximum=MAX_PRIORITY)] | None
    ) = None
    cache_salt: (
        Annotated[
            str,
            limits("Share cached prefixes only under this salt.", minLength=1, maxLength=MAX_SALT_CHARACTERS),
        ]
        | None
    ) = None


class PooledUsage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int


def check_pooled(request: PooledRequest) -> None:
    keep = request.truncate_prompt_tokens
    if keep is not None and not (keep == -1 or 1 <= keep <= MAX_COUNT):
        raise InvalidRequestError(
            f"truncate_prompt_tokens must be at least 1, or -1, got {shown(keep)}.",
            param="truncate_prompt_tokens",
        )
    if request.priority is not None and abs(request.priority) > MAX_PRIORITY:
        raise InvalidRequestError(
            f"priority must be between {-MAX_PRIORITY} and {MAX_PRIORITY}, got {shown(request.priority)}.",
            param="priority",
        )
    if request.cache_salt is not None and not 1 <= len(request.cache_salt) <= MAX_SALT_CHARACTERS:
        raise InvalidRequestError(
            f"cache_salt must have 1 to {MAX_SALT_CHARACTERS} characters, got {len(request.cache_salt)}.",
            param="cache_salt",
        )


def check_count(count: int, where: str) -> None:
    """Refuse a list of none, or of more than one request takes."""
    if not count:
        raise InvalidRequestError(f"{where} is empty; send at least one text.", param=where)
    if count > MAX_TEXTS:
        raise InvalidRequestError(
            f"{where} has {count} entries; a request takes at most {MAX_TEXTS}.", param=where
        )
