"""The text completions request: prompts as text or token ids, one or many."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.engine.beam import BeamSearchParams
from penstock.engine.request import MAX_CHOICES, SamplingParams
from penstock.errors import InvalidRequestError
from penstock.protocol import fields
from penstock.protocol.beam import beam_params, check_beam
from penstock.protocol.common import Input, TokenId, limits, split_inputs
from penstock.protocol.decode import decode, shown
from penstock.protocol.generation import (
    MAX_LOGPROBS,
    MAX_PROMPTS,
    MAX_TOTAL_CHOICES,
    GenerationRequest,
    check_common,
    check_logprobs,
    check_some_output,
    sampling_params,
)

DEFAULT_MAX_TOKENS = 16


class CompletionRequest(GenerationRequest, kw_only=True, forbid_unknown_fields=True):
    """Text or token ids to be continued."""

    prompt: Annotated[
        str | list[str | TokenId | list[TokenId]],
        Meta(description=f"Text, token ids, or a list of up to {MAX_PROMPTS} of one of them."),
    ]
    logprobs: (
        Annotated[
            int, limits("Log probabilities, with this many alternatives.", minimum=0, maximum=MAX_LOGPROBS)
        ]
        | None
    ) = None
    add_special_tokens: Annotated[bool, Meta(description="Begin text with the model's BOS token.")] | None = (
        None
    )

    echo: (
        Annotated[bool, Meta(description="Put the prompt in front of the answer, in text and logprobs.")]
        | None
    ) = None
    best_of: (
        Annotated[
            int,
            limits(
                "Make so many choices and return the n of the highest mean log probability; "
                "in a beam search, the number of beams.",
                minimum=1,
                maximum=MAX_CHOICES,
            ),
        ]
        | None
    ) = None

    @property
    def output_limit(self) -> int | None:
        """The most tokens of a choice; None: what the context leaves. A guided choice is as long as it is."""
        if self.max_tokens is not None:
            return self.max_tokens
        guided = self.guided_choice is not None or self.structured_outputs is not None
        return None if guided else DEFAULT_MAX_TOKENS

    def sampling(self) -> SamplingParams:
        prompt_logprobs = self.prompt_logprobs
        if self.echo and self.logprobs is not None:
            prompt_logprobs = max(self.logprobs, prompt_logprobs or 0)
        return sampling_params(
            self,
            max_tokens=self.output_limit,
            max_tokens_field="max_tokens",
            logprobs=self.logprobs,
            prompt_logprobs=prompt_logprobs,
            best_of=None if self.use_beam_search else self.best_of,
        )

    def beam(self) -> BeamSearchParams | None:
        return beam_params(
            self, width=self.best_of, max_tokens=self.output_limit, max_tokens_field="max_tokens"
        )

    def prompts(self) -> list[Input]:
        """One entry for each prompt. All are of one kind, none is empty."""
        return split_prompts(self.prompt)


def split_prompts(prompt: str | list[str | int | list[int]]) -> list[Input]:
    _not_empty(prompt, "prompt")
    prompts = split_inputs(prompt, "prompt", MAX_PROMPTS)
    for index, entry in enumerate(prompts):
        _not_empty(entry, f"prompt[{index}]")
    return prompts


def _not_empty(prompt: object, where: str) -> None:
    if not prompt:
        raise InvalidRequestError(f"{where} is empty; the model needs at least one token.", param=where)


CompletionWire = fields.with_fields(CompletionRequest, fields.COMPLETION)
_DECODER = msgspec.json.Decoder(CompletionWire)


def parse_completion(body: bytes) -> CompletionRequest:
    """A checked request, or InvalidRequestError. What needs the model (ids, context) is checked later."""
    request = decode(_DECODER, body)
    fields.refuse(request, fields.COMPLETION)
    check_common(request)
    check_beam(request)
    if not request.echo:
        check_some_output(request.max_tokens, "max_tokens")
    if request.best_of is not None and request.stream and request.best_of != (request.n or 1):
        raise InvalidRequestError(
            f"best_of must be n with stream, got {shown(request.best_of)}: which choices are the best is "
            "known at the end only.",
            param="best_of",
        )
    if request.logprobs is not None:
        check_logprobs("logprobs", request.logprobs)
    return request


def check_total_choices(prompts: int, choices: int, field: str = "n") -> None:
    """`choices` of each prompt, as `field` asks for."""
    if prompts * choices > MAX_TOTAL_CHOICES:
        raise InvalidRequestError(
            f"{prompts} prompts with {field} = {choices} make {prompts * choices} choices; a request may ask "
            f"for at most {MAX_TOTAL_CHOICES}.",
            param=field,
        )


def check_prompt_ids(ids: list[int], vocab_size: int, where: str) -> None:
    """Refuse token ids the model does not have."""
    if max(ids) >= vocab_size:
        index, bad = next((index, token) for index, token in enumerate(ids) if token >= vocab_size)
        raise InvalidRequestError(
            f"{where} has the token id {bad} at position {index}, but there are only {vocab_size} tokens.",
            param=where,
        )
