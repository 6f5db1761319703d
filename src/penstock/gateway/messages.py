"""Clients of `/v1/messages` in front of models whose servers speak chat completions only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.gateway.backends import Backend
from penstock.gateway.exchange import Exchange
from penstock.gateway.inquiry import Inquiry
from penstock.protocol.anthropic_face import MessagesFace
from penstock.protocol.openapi import OPERATIONS

_CHAT: Final = next(operation for operation in OPERATIONS if operation.name == "createChatCompletion")


def speak(exchange: Exchange, backends: Sequence[Backend], lacking: str = "") -> None:
    """Before these are tried: leave the request as it came if one of them knows it, else make it a chat.
    `lacking`: an operation that none of them knows, whatever they are believed to offer."""
    operation, inquiry = exchange.asked
    if operation.asks != "createMessage":
        return
    able = {name for backend in backends for name in backend.operations if name != lacking}
    exchange.operation, exchange.inquiry, exchange.face = operation, inquiry, None
    if "createMessage" not in able and _CHAT.asks in able:
        exchange.operation = _CHAT
        exchange.inquiry = Inquiry(_CHAT.asks, MessagesFace.chat(inquiry.encode()))
        exchange.face = MessagesFace(exchange.model, exchange.call.id)
