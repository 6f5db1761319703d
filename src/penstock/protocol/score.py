"""`/v1/score`, in vLLM's shape: how well texts go together, two by two."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.errors import InvalidRequestError
from penstock.protocol import fields
from penstock.protocol.decode import decode
from penstock.protocol.fields import Field, Refused
from penstock.protocol.pooled import MAX_TEXTS, POOLED, PooledRequest, PooledUsage, check_count, check_pooled

SCORE: tuple[Field, ...] = (
    *POOLED,
    Refused("use_activation", (True,)),
    Refused("activation", (True,)),
)

Place = tuple[str, str]  # of a text: its name in the request, and the text


class ScoreRequest(PooledRequest, kw_only=True, forbid_unknown_fields=True):
    """One text against one or many, or two lists of equal length, entry by entry."""

    text_1: Annotated[str | list[str], Meta(description=f"A text, or up to {MAX_TEXTS}.")]
    text_2: Annotated[str | list[str], Meta(description=f"A text, or up to {MAX_TEXTS}.")]

    def pairs(self) -> list[tuple[Place, Place]]:
        left, right = _places("text_1", self.text_1), _places("text_2", self.text_2)
        if len(left) == 1:
            left = left * len(right)
        return list(zip(left, right, strict=True))


class Score(msgspec.Struct, kw_only=True):
    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreResponse(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Score]
    usage: PooledUsage


ScoreWire = fields.with_fields(ScoreRequest, SCORE)
_DECODER = msgspec.json.Decoder(ScoreWire)


def parse_score(body: bytes) -> ScoreRequest:
    request = decode(_DECODER, body)
    fields.refuse(request, SCORE)
    check_pooled(request)
    counts = []
    for name, texts in (("text_1", request.text_1), ("text_2", request.text_2)):
        counts.append(1 if isinstance(texts, str) else len(texts))
        check_count(counts[-1], name)
    if counts[0] != 1 and counts[0] != counts[1]:
        raise InvalidRequestError(
            f"text_1 has {counts[0]} texts and text_2 has {counts[1]}; text_1 must be one text, or as many "
            "as text_2 has.",
            param="text_1",
        )
    return request


def _places(name: str, texts: str | list[str]) -> list[Place]:
    if isinstance(texts, str):
        return [(name, texts)]
    return [(f"{name}[{index}]", text) for index, text in enumerate(texts)]
