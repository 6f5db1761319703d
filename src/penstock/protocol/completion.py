"""The text completions request: prompts as text or token ids, one or many."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from msgspec import Meta

from penstock.engine.beam import BeamSearchParams
from penstock.engine.request import MAX_CHOICES, SamplingParams
from penstock.errors import InvalidRequestError
from penstock.protocol import fields
from penstock.protocol.beam import beam_params, check_beam
from penstock.protocol.decode import decode, shown
from penstock.protocol.generation import (
    MAX_LOGPROBS,
    MAX_PROMPTS,
    MAX_TOTAL_CHOICES,
    GenerationRequest,
    TokenId,
    check_common,
    check_logprobs,
    check_some_output,
    limits,
    sampling_params,
)

DEFAULT_MAX_TOKENS = 16

Prompt = str | list[int]


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

    def prompts(self) -> list[Prompt]:
        """One entry for each prompt. All are of one kind, none is empty."""
        return split_prompts(self.prompt)


def split_prompts(prompt: str | list[str | int | list[int]]) -> list[Prompt]:
    if isinstance(prompt, str):
        _not_empty(prompt, "prompt")
        return [prompt]
    _not_empty(prompt, "prompt")
    kind = type(prompt[0])
    if len(set(map(type, prompt))) > 1:  # a prompt may have millions of ids before its length is refused
        index = next(index for index, entry in enumerate(prompt) if type(entry) is not kind)
        raise InvalidRequestError(
            f"prompt mixes kinds: entry {index} is not like the first one. Send text, token ids, "
            "a list of texts or a list of token id lists.",
            param=f"prompt[{index}]",
        )
    if kind is int:
        return [cast("list[int]", prompt)]
    if len(prompt) > MAX_PROMPTS:
        raise InvalidRequestError(
            f"prompt has {len(prompt)} entries; a request takes at most {MAX_PROMPTS}.", param="prompt"
        )
    prompts = cast("list[Prompt]", prompt)
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
