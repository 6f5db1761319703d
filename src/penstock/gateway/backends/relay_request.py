"""What a server is sent in place of what the client sent: our name for the model, our key, our wishes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.gateway.backends.presets import Preset
from penstock.gateway.backends.relay_refused import check_fields
from penstock.gateway.inquiry import OUTPUT_LIMITS
from penstock.gateway.upstream import header_lines
from penstock.observe.trace import onward

if TYPE_CHECKING:
    from penstock.gateway.exchange import Exchange

_USAGE_STREAMS: Final = ("createChatCompletion", "createCompletion")
_SALTED: Final = ("createChatCompletion", "createCompletion", "createEmbedding", "rerank", "score")
# A server might obey a name that is not this operation's; what is set aside here goes by those that are.
_LIMITS: Final = tuple({name: None for names in OUTPUT_LIMITS.values() for name in names})


def static_headers(api_key: str | None, headers: Mapping[str, str] | None) -> bytes:
    """What every request to a backend carries. A header of the configuration replaces one of these."""
    fields = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    if api_key:
        fields["authorization"] = f"Bearer {api_key}"
    fields.update((name.lower(), value) for name, value in (headers or {}).items())
    return header_lines(fields.items())


def request_headers(static: bytes, exchange: Exchange) -> bytes:
    """Of the client's headers none goes on but those that tie traces together."""
    return b"%bx-request-id: %b\r\n%b" % (static, exchange.call.id.encode(), onward(exchange.record))


def request_body(preset: Preset, model: str, prioritizes: bool, exchange: Exchange) -> bytes:
    """Raises InvalidRequestError for fields that do not go on and would be missed."""
    inquiry, operation = exchange.inquiry, exchange.operation.asks
    fields = inquiry.fields
    check_fields(inquiry, stored=preset.stored)
    changes: dict[str, Any] = {}
    if inquiry.model != model:
        changes["model"] = model
    if inquiry.stream and operation in _USAGE_STREAMS and preset.stream_usage:
        # Always: what is delivered is billed, and only the server can count it.
        options = {"include_usage": True}
        if preset.running_usage != "none":
            options["continuous_usage_stats"] = True
        changes["stream_options"] = options
    elif "stream_options" in fields and not preset.stream_usage:
        changes["stream_options"] = None
    if preset.priority and prioritizes:
        changes["priority"] = exchange.priority * preset.priority
    elif "priority" in fields:
        changes["priority"] = (
            None  # who goes first is decided here; a server without priorities would refuse it
        )
    if preset.cache_salt and operation in _SALTED and exchange.salt != "/":
        # Of one length whatever the client's own part of it, and telling the server nothing.
        changes["cache_salt"] = hashlib.sha256(exchange.salt.encode()).hexdigest()[:32]
    own = OUTPUT_LIMITS.get(operation, _LIMITS)
    # A service tier is the gateway's class of service here, and a provider might bill for it.
    for name in ("service_tier", *preset.withheld, *(name for name in _LIMITS if name not in own)):
        if name in fields:
            changes[name] = None
    if operation == "createChatCompletion" and preset.max_tokens is not None:
        other = "max_completion_tokens" if preset.max_tokens == "max_tokens" else "max_tokens"
        if other in fields:
            limit = inquiry.max_tokens
            changes[other] = None
            if limit is not None:
                changes[preset.max_tokens] = limit
    return inquiry.encode(changes)
