"""Streams of Responses and Messages, whose events have names: did one come to its end. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.gateway.cache.assemble import payloads
from penstock.gateway.cache.entry import all_ended


def ended_named(operation: str, events: bytes) -> bool | None:
    """None: it is not whole, or failed. Else whether it ended of itself."""
    reason: Any = None
    last = ""
    content = False
    try:
        for payload in payloads(events):
            event: Any = msgspec.json.decode(payload)
            last = event.get("type", "")
            if last == "error":
                return None
            if last == "message_delta":
                reason = event["delta"].get("stop_reason") or reason
            content = content or last.endswith("delta")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError, KeyError, TypeError):
        return None
    if not content:
        return None
    if operation == "createResponse":
        return True if last == "response.completed" else None
    return all_ended(operation, [reason]) if last == "message_stop" else None
