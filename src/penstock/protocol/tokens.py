"""`/tokenize` and `/detokenize`, in vLLM's shapes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.errors import InvalidRequestError
from penstock.protocol import fields
from penstock.protocol.chat import template_options
from penstock.protocol.common import TokenId
from penstock.protocol.decode import decode
from penstock.protocol.messages import Message, to_template


class TokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Either `prompt` or `messages`."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: (
        Annotated[bool, Meta(description="Begin a prompt with the model's BOS token (default).")] | None
    ) = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None

    def template_messages(self) -> list[dict[str, Any]]:
        return to_template(self.messages or [])

    def template_options(self) -> dict[str, Any]:
        return template_options(
            self.add_generation_prompt, self.continue_final_message, self.chat_template_kwargs
        )


class TokenizeResponse(msgspec.Struct, kw_only=True):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    model: str | None = None
    tokens: list[TokenId]


class DetokenizeResponse(msgspec.Struct, kw_only=True):
    prompt: str


TokenizeWire = fields.with_fields(TokenizeRequest, fields.TOKENIZE)
_TOKENIZE = msgspec.json.Decoder(TokenizeWire)
_DETOKENIZE = msgspec.json.Decoder(DetokenizeRequest)


def parse_tokenize(body: bytes) -> TokenizeRequest:
    request = decode(_TOKENIZE, body)
    fields.refuse(request, fields.TOKENIZE)
    if (request.prompt is None) == (request.messages is None):
        raise InvalidRequestError("Give either prompt or messages.", param="prompt")
    if request.messages is not None and request.add_special_tokens:
        raise InvalidRequestError(
            "add_special_tokens is not supported with messages: the chat template adds them.",
            param="add_special_tokens",
        )
    return request


def parse_detokenize(body: bytes) -> DetokenizeRequest:
    return decode(_DETOKENIZE, body)
