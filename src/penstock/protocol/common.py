"""What every request that reaches the engine shares, whether it asks for text, vectors or scores."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from penstock.engine.request import MAX_COUNT, MAX_PRIORITY
from penstock.errors import InvalidRequestError
from penstock.protocol.decode import shown

MAX_SALT_CHARACTERS = 1024

Input = str | list[int]


def limits(description: str, **schema: Any) -> Meta:
    """Document a range without enforcing it: a check does, with a sentence that has the value."""
    return Meta(description=description, extra_json_schema=schema)


Count = Annotated[int, Meta(le=MAX_COUNT)]
TokenId = Annotated[int, Meta(ge=0, le=MAX_COUNT)]


class ModelRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(description="A name from /v1/models; absent: the served model.")] | None = None
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


def check_model_request(request: ModelRequest) -> None:
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


def check_truncation(keep: int | None) -> None:
    if keep is not None and not (keep == -1 or 1 <= keep <= MAX_COUNT):
        raise InvalidRequestError(
            f"truncate_prompt_tokens must be at least 1, or -1, got {shown(keep)}.",
            param="truncate_prompt_tokens",
        )


def split_inputs(given: str | list[str | int | list[int]], field: str, most: int) -> list[Input]:
    """One entry for each text or list of ids: all of one kind, `most` of them at most. `given` has some."""
    if isinstance(given, str):
        return [given]
    kind = type(given[0])
    if len(set(map(type, given))) > 1:  # there may be millions of ids before a length is refused
        index = next(index for index, entry in enumerate(given) if type(entry) is not kind)
        raise InvalidRequestError(
            f"{field} mixes kinds: entry {index} is not like the first one. Send text, token ids, "
            "a list of texts or a list of token id lists.",
            param=f"{field}[{index}]",
        )
    if kind is int:  # one list of ids is a single input, however long it is
        return [cast("list[int]", given)]
    if len(given) > most:
        raise InvalidRequestError(
            f"{field} has {len(given)} entries; a request takes at most {most}.", param=field
        )
    return cast("list[Input]", given)
