"""What constrains an answer to given texts: `guided_choice`, and vLLM's newer `structured_outputs`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.engine.request import MAX_GUIDED_CHOICES, MAX_TEXT_CHARACTERS
from penstock.errors import InvalidRequestError

MAX_CHARACTERS = 65536  # of all choices together
_OFF = Meta(description="Not supported.", extra_json_schema={"enum": [None, False]})

GuidedTexts = Annotated[
    list[str],
    Meta(
        description="The answer is exactly one of these texts.",
        extra_json_schema={
            "minItems": 1,
            "maxItems": MAX_GUIDED_CHOICES,
            "uniqueItems": True,
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_TEXT_CHARACTERS},
        },
    ),
]


class StructuredOutputs(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Of vLLM's kinds only `choice`."""

    choice: GuidedTexts | None = None
    json: Annotated[Any, _OFF] = None
    json_object: Annotated[Any, _OFF] = None
    regex: Annotated[Any, _OFF] = None
    grammar: Annotated[Any, _OFF] = None
    structural_tag: Annotated[Any, _OFF] = None
    whitespace_pattern: Annotated[Any, _OFF] = None
    disable_any_whitespace: Annotated[Any, _OFF] = None
    disable_additional_properties: Annotated[Any, _OFF] = None
    disable_fallback: Annotated[Any, _OFF] = None


def guided_choice(choices: list[str] | None, structured: StructuredOutputs | None) -> tuple[str, ...]:
    """The texts of which the answer must be one; none if it is free."""
    where = "guided_choice"
    if structured is not None:
        _check_kinds(structured)
        if choices is not None and structured.choice is not None:
            raise InvalidRequestError(
                "guided_choice and structured_outputs.choice say the same thing; send one of them.",
                param="guided_choice",
            )
        if structured.choice is not None:
            choices, where = structured.choice, "structured_outputs.choice"
    if choices is None:
        return ()
    if not choices:
        raise InvalidRequestError(f"{where} is empty; give at least one text.", param=where)
    if len(choices) > MAX_GUIDED_CHOICES:
        raise InvalidRequestError(
            f"{where} takes at most {MAX_GUIDED_CHOICES} texts, got {len(choices)}.", param=where
        )
    characters = sum(map(len, choices))
    if characters > MAX_CHARACTERS:
        raise InvalidRequestError(
            f"{where} has {characters} characters together; at most {MAX_CHARACTERS} are taken.", param=where
        )
    seen: set[str] = set()
    for number, choice in enumerate(choices):
        if not 1 <= len(choice) <= MAX_TEXT_CHARACTERS:
            raise InvalidRequestError(
                f"{where}[{number}] must have 1 to {MAX_TEXT_CHARACTERS} characters, got {len(choice)}.",
                param=where,
            )
        if choice in seen:
            raise InvalidRequestError(f"{where}[{number}] is there twice.", param=where)
        seen.add(choice)
    return tuple(choices)


def _check_kinds(structured: StructuredOutputs) -> None:
    kinds = [name for name in structured.__struct_fields__ if name != "choice"]
    for name in kinds:
        value = getattr(structured, name)
        if value is not None and value is not False:
            raise InvalidRequestError(
                f"structured_outputs.{name} is not supported; of its kinds only choice is.",
                param=f"structured_outputs.{name}",
                code="unsupported_parameter",
            )
