"""`/v1/rerank`, in the shape that Jina, Cohere and vLLM share."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.engine.request import MAX_COUNT
from penstock.errors import InvalidRequestError
from penstock.protocol import fields
from penstock.protocol.common import limits
from penstock.protocol.decode import decode, shown
from penstock.protocol.fields import Field, Refused
from penstock.protocol.pooled import MAX_TEXTS, POOLED, PooledRequest, PooledUsage, check_count, check_pooled

RERANK: tuple[Field, ...] = (
    *POOLED,
    Refused("rank_fields", ([], ["text"]), "A document is its text."),
    Refused("max_chunks_per_doc", (1,), "A document is read as a whole; see truncate_prompt_tokens."),
    Refused("max_tokens_per_doc", (), "Use truncate_prompt_tokens."),
    Refused("return_embeddings", (False,), "Use /v1/embeddings."),
    Refused("use_activation", (True,)),
    Refused("activation", (True,)),
)


class RerankDocument(msgspec.Struct, forbid_unknown_fields=True):
    text: str


class RerankRequest(PooledRequest, kw_only=True, forbid_unknown_fields=True):
    """Documents to be put in order by how well they answer a query."""

    query: str
    documents: Annotated[
        list[str | RerankDocument], Meta(description=f"Up to {MAX_TEXTS} texts, as they are or as {{text}}.")
    ]
    top_n: (
        Annotated[int, limits("Give only the best so many; 0: all.", minimum=0, maximum=MAX_COUNT)] | None
    ) = None
    return_documents: (
        Annotated[bool, Meta(description="Repeat each document in its result (default).")] | None
    ) = None

    def texts(self) -> list[str]:
        return [entry if isinstance(entry, str) else entry.text for entry in self.documents]


class RerankResult(msgspec.Struct, kw_only=True):
    index: int
    relevance_score: float
    document: RerankDocument | UnsetType = UNSET


class RerankResponse(msgspec.Struct, kw_only=True):
    id: str
    model: str
    results: list[RerankResult]
    usage: PooledUsage


RerankWire = fields.with_fields(RerankRequest, RERANK)
_DECODER = msgspec.json.Decoder(RerankWire)


def parse_rerank(body: bytes) -> RerankRequest:
    request = decode(_DECODER, body)
    fields.refuse(request, RERANK)
    check_pooled(request)
    check_count(len(request.documents), "documents")
    if request.top_n is not None and request.top_n < 0:
        raise InvalidRequestError(f"top_n must be at least 0, got {shown(request.top_n)}.", param="top_n")
    return request


def ranked(scores: list[float], top_n: int | None) -> list[int]:
    """The places of the best scores, best first; equal ones in the order they came."""
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    return order[:top_n] if top_n else order
