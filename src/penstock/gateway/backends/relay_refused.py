"""Fields that no client may send through to a server: they are the operator's, or reach beyond one tenant.

All requests to a server carry one key, so what it keeps under an id it gives to whoever names that id.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequestError
from penstock.gateway.inquiry import Inquiry
from penstock.protocol.decode import decode

# How servers work together, which code and which weights they run, and what they call a request.
OPERATORS: Final = (
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "chat_template",
    "kv_transfer_params",
    "logits_processors",
    "lora_path",
    "rid",
)
# What names an object that the server keeps.
STORED: Final = ("previous_response_id", "conversation", "prompt")
_NOTHING: Final = (b"", b"null")
_items: Final = msgspec.json.Decoder(list[Any])


def check_fields(inquiry: Inquiry, *, stored: bool) -> None:
    """Raise InvalidRequestError for what is not the client's to say. `stored`: ids may be named."""
    fields = inquiry.fields
    for name in OPERATORS:
        if name in fields and bytes(fields[name]) not in _NOTHING:
            raise InvalidRequestError(
                f"{name} is not taken from a request: it is for whoever runs the server behind this model.",
                param=name,
                code="unknown_parameter",
            )
    limits = inquiry.limits
    if len(set(limits.values())) > 1:  # which of them the server obeys is its own affair
        said = " and ".join(f"{name} {value}" for name, value in limits.items())
        raise InvalidRequestError(
            f"{said} are two limits of one answer; give one of them.", param=next(iter(limits))
        )
    if inquiry.operation != "createResponse":
        return
    if bytes(fields.get("background", b"")) == b"true":
        raise InvalidRequestError(
            "background: true is not offered: an answer cannot be fetched later; leave it out.",
            param="background",
            code="unsupported_value",
        )
    if stored:
        return
    for name in STORED:
        if bytes(fields.get(name, b"")) not in _NOTHING:
            raise _shared(name)
    given = bytes(fields.get("input", b""))
    items = decode(_items, given) if given.startswith(b"[") else []
    if any(map(_is_reference, items)):
        raise _shared("input")


def _is_reference(item: Any) -> bool:
    """An item without a type is one too, if it has nothing but an id."""
    if not isinstance(item, dict):
        return False
    return item.get("type") == "item_reference" or {name for name, value in item.items() if value} == {"id"}


def _shared(name: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{name} names what the server behind this model keeps, where ids are shared by all tenants of the "
        "server's key; send the conversation itself.",
        param=name,
        code="unsupported_parameter",
    )
