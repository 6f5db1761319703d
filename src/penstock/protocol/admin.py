"""What administrators see and say: the replicas of each model, and servers that register."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from penstock.observe.snapshot import ReplicaNow
from penstock.protocol.decode import decode

DEFAULT_TTL: Final = 30.0  # seconds


class RegisterRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(description="The model that the server answers for.")]
    url: Annotated[str, Meta(description="Where it is, http or https.")]
    backend: (
        Annotated[str, Meta(description="Which backend of the model, if several take servers.")] | None
    ) = None
    ttl: (
        Annotated[float, Meta(description="Seconds until it is forgotten unless it registers again.")] | None
    ) = None


class Registered(msgspec.Struct, kw_only=True):
    object: Literal["registration"] = "registration"
    model: str
    backend: str
    url: str
    changed: bool  # it is new, or was known until now


class DrainRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(description="The model that it answers for.")]
    replica: Annotated[str, Meta(description="Its name, as /admin/backends lists it.")]
    drained: Annotated[bool, Meta(description="false brings it back.")] = True


class Drained(msgspec.Struct, kw_only=True):
    object: Literal["replica"] = "replica"
    model: str
    replica: str
    drained: bool
    changed: bool
    requests: int  # that it still has from the process that was asked


class InvalidateRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    tenant: Annotated[str, Meta(description="Whose answers; everybody's otherwise.")] | None = None
    model: Annotated[str, Meta(description="Answers of which model or tier; all otherwise.")] | None = None


class Invalidated(msgspec.Struct, kw_only=True):
    object: Literal["cache.invalidation"] = "cache.invalidation"
    tenant: str | None
    model: str | None


class ModelState(msgspec.Struct, kw_only=True):
    model: str
    waiting: dict[str, int]  # by service class
    replicas: list[ReplicaNow]


class BackendList(msgspec.Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelState]


_decoder: Final = msgspec.json.Decoder(RegisterRequest)
_drain: Final = msgspec.json.Decoder(DrainRequest)
_invalidate: Final = msgspec.json.Decoder(InvalidateRequest)


def parse_register(body: bytes) -> RegisterRequest:
    return decode(_decoder, body)


def parse_drain(body: bytes) -> DrainRequest:
    return decode(_drain, body)


def parse_invalidate(body: bytes) -> InvalidateRequest:
    return decode(_invalidate, body)
