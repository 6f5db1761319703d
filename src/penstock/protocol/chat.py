"""The chat completions request: what it may say, and its checks."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.engine.beam import BeamSearchParams
from penstock.engine.request import SamplingParams
from penstock.errors import InvalidRequestError
from penstock.protocol import fields
from penstock.protocol.beam import beam_params, check_beam
from penstock.protocol.common import Count, limits
from penstock.protocol.decode import decode
from penstock.protocol.generation import (
    MAX_LOGPROBS,
    GenerationRequest,
    check_common,
    check_logprobs,
    check_some_output,
    sampling_params,
)
from penstock.protocol.messages import Message, to_template
from penstock.protocol.plain import check_plain, check_small


class ChatCompletionRequest(GenerationRequest, kw_only=True, forbid_unknown_fields=True):
    """A conversation to be continued by the assistant."""

    messages: list[Message]
    logprobs: Annotated[bool, Meta(description="Return log probabilities of the answer's tokens.")] | None = (
        None
    )
    top_logprobs: (
        Annotated[
            int, limits("Alternatives for each token; needs logprobs.", minimum=0, maximum=MAX_LOGPROBS)
        ]
        | None
    ) = None
    max_completion_tokens: (
        Annotated[Count, limits("The most tokens of a choice; wins over max_tokens.", minimum=1)] | None
    ) = None
    add_generation_prompt: (
        Annotated[
            bool,
            Meta(description="Open the assistant's turn (default, unless the last message is continued)."),
        ]
        | None
    ) = None
    continue_final_message: (
        Annotated[bool, Meta(description="Continue the last message as it stands.")] | None
    ) = None
    include_reasoning: (
        Annotated[bool, Meta(description="Return what the model thought before it answered (default).")]
        | None
    ) = None
    chat_template_kwargs: (
        Annotated[dict[str, Any], Meta(description="Variables for the model's own chat template.")] | None
    ) = None

    @property
    def output_limit(self) -> tuple[int | None, str]:
        """The most tokens of a choice (None: what the context leaves), and the field that said so."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens, "max_completion_tokens"
        return self.max_tokens, "max_tokens"

    def sampling(self) -> SamplingParams:
        limit, field = self.output_limit
        return sampling_params(
            self,
            max_tokens=limit,
            max_tokens_field=field,
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            prompt_logprobs=self.prompt_logprobs,
        )

    def beam(self) -> BeamSearchParams | None:
        limit, field = self.output_limit
        return beam_params(self, width=None, max_tokens=limit, max_tokens_field=field)

    def template_messages(self) -> list[dict[str, Any]]:
        return to_template(self.messages)

    def template_options(self) -> dict[str, Any]:
        """Keyword arguments for the chat template."""
        return template_options(
            self.add_generation_prompt, self.continue_final_message, self.chat_template_kwargs
        )


def template_options(add: bool | None, resume: bool | None, kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Which variables a client may set is for the template to say; here only how deep and large they are."""
    check_plain(kwargs, "chat_template_kwargs")
    check_small(kwargs, "chat_template_kwargs")
    return {
        "add_generation_prompt": not resume if add is None else add,
        "continue_final_message": bool(resume),
        "kwargs": kwargs,
    }


ChatWire = fields.with_fields(ChatCompletionRequest, fields.CHAT)
_DECODER = msgspec.json.Decoder(ChatWire)


def parse_chat(body: bytes) -> ChatCompletionRequest:
    """A checked request, or InvalidRequestError. What needs the model (ids, context) is checked later."""
    request = decode(_DECODER, body)
    fields.refuse(request, fields.CHAT)
    check_common(request)
    check_beam(request)
    check_some_output(*request.output_limit)
    if request.top_logprobs is not None:
        check_logprobs("top_logprobs", request.top_logprobs)
        if not request.logprobs:
            raise InvalidRequestError("top_logprobs needs logprobs: true.", param="top_logprobs")
    return request
