"""`/v1/embeddings`, in OpenAI's shape with vLLM's additions."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Annotated, Literal, cast

import msgspec
from msgspec import Meta

from penstock.engine.vectors import Vector, finished
from penstock.protocol import fields
from penstock.protocol.common import Count, Input, TokenId, limits, split_inputs
from penstock.protocol.decode import decode
from penstock.protocol.fields import Field, Refused
from penstock.protocol.pooled import MAX_TEXTS, POOLED, PooledRequest, PooledUsage, check_pooled, check_some

EncodingFormat = Literal["float", "base64"]

EMBEDDINGS: tuple[Field, ...] = (
    *POOLED,
    Refused("messages", ([],), "Send input as text."),
    Refused("embed_dtype", ("float32",), "Vectors are float32."),
    Refused("endianness", ("native", "little"), "Vectors are little-endian."),
    Refused("use_activation", (True,), "Use normalize."),
)


class EmbeddingRequest(PooledRequest, kw_only=True, forbid_unknown_fields=True):
    """Texts or token ids to be turned into vectors."""

    input: Annotated[
        str | list[str | TokenId | list[TokenId]],
        Meta(description=f"Text, token ids, or a list of up to {MAX_TEXTS} of one of them."),
    ]
    encoding_format: (
        Annotated[EncodingFormat, Meta(description="Numbers, or little-endian float32 in base64.")] | None
    ) = None
    dimensions: Annotated[Count, limits("Keep the first so many numbers.", minimum=1)] | None = None
    normalize: Annotated[bool, Meta(description="Bring vectors to length 1 (default).")] | None = None
    add_special_tokens: (
        Annotated[bool, Meta(description="Put the model's own frame around texts (default).")] | None
    ) = None

    def inputs(self) -> list[tuple[str, Input]]:
        """Each text or list of ids, with the name of its place. All are of one kind."""
        if not isinstance(self.input, str):
            check_some(len(self.input), "input")
        entries = split_inputs(self.input, "input", MAX_TEXTS)
        if isinstance(self.input, str) or isinstance(self.input[0], int):
            return [("input", entries[0])]
        return [(f"input[{index}]", entry) for index, entry in enumerate(entries)]


class Embedding(msgspec.Struct, kw_only=True):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingResponse(msgspec.Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: PooledUsage


EmbeddingWire = fields.with_fields(EmbeddingRequest, EMBEDDINGS)
_DECODER = msgspec.json.Decoder(EmbeddingWire)


def parse_embeddings(body: bytes) -> EmbeddingRequest:
    """A checked request, or InvalidRequestError. What needs the model (ids, lengths) is checked later."""
    request = decode(_DECODER, body)
    fields.refuse(request, EMBEDDINGS)
    check_pooled(request)
    return request


def encode_embeddings(request: EmbeddingRequest, vectors: Iterable[Vector], model: str, tokens: int) -> bytes:
    """The answer. Vector by vector: other threads run in between, and all of them may be 200 megabytes."""
    normalize = request.normalize is not False
    entries = []
    for index, vector in enumerate(vectors):
        values = finished(vector, dimensions=request.dimensions, normalize=normalize)
        entry = Embedding(index=index, embedding=_written(values, request.encoding_format))
        entries.append(msgspec.json.encode(entry))
    usage = PooledUsage(prompt_tokens=tokens, total_tokens=tokens)
    around = msgspec.json.encode(EmbeddingResponse(data=[], model=model, usage=usage))
    before, after = around.split(b"[]", 1)
    return b"".join([before, b"[", b",".join(entries), b"]", after])


def _written(vector: Vector, encoding_format: EncodingFormat | None) -> list[float] | str:
    if encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return cast("list[float]", vector.tolist())
