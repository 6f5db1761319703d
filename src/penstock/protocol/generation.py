"""What chat and text completions share: the sampling fields, and how they become SamplingParams."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from penstock.engine.beam import MAX_LENGTH_PENALTY
from penstock.engine.request import (
    MAX_BAD_WORDS,
    MAX_CHOICES,
    MAX_STOP_CHARACTERS,
    MAX_STOPS,
    MAX_TEXT_CHARACTERS,
    SamplingParams,
)
from penstock.errors import InvalidRequestError
from penstock.protocol.common import (
    Count,
    ModelRequest,
    TokenId,
    check_model_request,
    check_truncation,
    limits,
)
from penstock.protocol.decode import shown
from penstock.protocol.structured import GuidedTexts, StructuredOutputs, guided_choice

MAX_LOGPROBS = 20  # alternatives at a position; the engine itself could give more
MAX_ALLOWED_TOKENS = 65536
MAX_BAD_CHARACTERS = 65536  # of all bad words together
MAX_PROMPTS = 256
# Choices of one HTTP request, over all its prompts: what a full engine queue holds by default.
MAX_TOTAL_CHOICES = 1024


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    include_usage: (
        Annotated[bool, Meta(description="End the stream with a chunk that has the usage.")] | None
    ) = None
    continuous_usage_stats: (
        Annotated[bool, Meta(description="Put the usage so far into every chunk (vLLM).")] | None
    ) = None
    include_obfuscation: Annotated[bool, Meta(description="Ignored. Nothing is obfuscated.")] | None = None


class GenerationRequest(ModelRequest, kw_only=True, forbid_unknown_fields=True):
    stream: Annotated[bool, Meta(description="Send server-sent events as tokens arrive.")] | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, limits("Choices for each prompt.", minimum=1, maximum=MAX_CHOICES)] | None = None
    temperature: Annotated[float, limits("0 is greedy.", minimum=0, maximum=2)] | None = None
    top_p: (
        Annotated[float, limits("Keep the likeliest tokens of this mass.", exclusiveMinimum=0, maximum=1)]
        | None
    ) = None
    top_k: Annotated[Count, limits("Keep the k likeliest tokens; 0 or -1: all.", minimum=-1)] | None = None
    min_p: (
        Annotated[
            float,
            limits("Keep tokens of this share of the likeliest one's probability.", minimum=0, maximum=1),
        ]
        | None
    ) = None
    repetition_penalty: (
        Annotated[float, limits("Above 1 discourages any repetition.", exclusiveMinimum=0)] | None
    ) = None
    presence_penalty: Annotated[float, limits("For tokens seen already.", minimum=-2, maximum=2)] | None = (
        None
    )
    frequency_penalty: (
        Annotated[float, limits("For each time a token was seen.", minimum=-2, maximum=2)] | None
    ) = None
    logit_bias: (
        Annotated[
            dict[TokenId, float], Meta(description="Token id to a value from -100 to 100 added to its logit.")
        ]
        | None
    ) = None
    seed: (
        Annotated[int, limits("The same seed gives the same choices.", minimum=-(2**63), maximum=2**64 - 1)]
        | None
    ) = None
    stop: (
        Annotated[
            str | list[str],
            Meta(description=f"Up to {MAX_STOPS} strings of {MAX_STOP_CHARACTERS} characters, each an end."),
        ]
        | None
    ) = None
    stop_token_ids: Annotated[list[TokenId], Meta(description="Token ids that end a choice.")] | None = None
    ignore_eos: Annotated[bool, Meta(description="Go on after the model's own end.")] | None = None
    min_tokens: Annotated[Count, limits("No end before this many tokens.", minimum=0)] | None = None
    max_tokens: Annotated[Count, limits("The most tokens of a choice.", minimum=1)] | None = None
    include_stop_str_in_output: (
        Annotated[bool, Meta(description="Keep the stop string in the text.")] | None
    ) = None
    skip_special_tokens: Annotated[bool, Meta(description="Leave special tokens out of the text.")] | None = (
        None
    )
    allowed_token_ids: (
        Annotated[
            list[TokenId],
            limits("Generate nothing but these tokens.", minItems=1, maxItems=MAX_ALLOWED_TOKENS),
        ]
        | None
    ) = None
    bad_words: (
        Annotated[
            list[str],
            limits(
                "Never generate these words, alone or behind a space.",
                maxItems=MAX_BAD_WORDS,
                items={"type": "string", "minLength": 1, "maxLength": MAX_TEXT_CHARACTERS},
            ),
        ]
        | None
    ) = None
    guided_choice: GuidedTexts | None = None
    structured_outputs: StructuredOutputs | None = None
    prompt_logprobs: (
        Annotated[
            int,
            limits(
                "Log probabilities of the prompt's tokens, with this many alternatives; not with stream.",
                minimum=0,
                maximum=MAX_LOGPROBS,
            ),
        ]
        | None
    ) = None
    truncate_prompt_tokens: (
        Annotated[
            Count,
            limits(
                "Keep only so many tokens of a longer prompt; -1: as many as there is room for.", minimum=-1
            ),
        ]
        | None
    ) = None
    truncation_side: (
        Annotated[
            Literal["left", "right"],
            Meta(description="Where a longer prompt is cut: left (default) keeps its end."),
        ]
        | None
    ) = None
    return_token_ids: Annotated[bool, Meta(description="Add the token ids of prompt and answer.")] | None = (
        None
    )
    return_tokens_as_token_ids: (
        Annotated[bool, Meta(description="Write tokens in logprobs as 'token_id:ID'.")] | None
    ) = None
    use_beam_search: (
        Annotated[bool, Meta(description="Search for the n likeliest answers instead of sampling.")] | None
    ) = None
    length_penalty: (
        Annotated[
            float,
            limits(
                "In a beam search, above 0 favours long answers.",
                minimum=-MAX_LENGTH_PENALTY,
                maximum=MAX_LENGTH_PENALTY,
            ),
        ]
        | None
    ) = None
    early_stopping: (
        Annotated[
            bool | Literal["never"],
            Meta(description="In a beam search, whether to stop at as many complete answers as beams."),
        ]
        | None
    ) = None


_SAMPLING = (
    "n",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "allowed_token_ids",
    "bad_words",
)


def check_common(request: GenerationRequest) -> None:
    """The rules between fields that SamplingParams does not see."""
    check_model_request(request)
    check_truncation(request.truncate_prompt_tokens)
    if request.stream_options is not None and not request.stream:
        raise InvalidRequestError("stream_options is only allowed with stream: true.", param="stream_options")
    allowed = request.allowed_token_ids
    # Whoever's own choice of tokens came out empty does not want all of them.
    if allowed is not None and not 1 <= len(allowed) <= MAX_ALLOWED_TOKENS:
        raise InvalidRequestError(
            f"allowed_token_ids takes 1 to {MAX_ALLOWED_TOKENS} ids, got {len(allowed)}; left out, it allows "
            "all.",
            param="allowed_token_ids",
        )
    if (characters := sum(map(len, request.bad_words or ()))) > MAX_BAD_CHARACTERS:
        raise InvalidRequestError(
            f"bad_words has {characters} characters together; at most {MAX_BAD_CHARACTERS} are taken.",
            param="bad_words",
        )
    if request.prompt_logprobs is not None:
        check_logprobs("prompt_logprobs", request.prompt_logprobs)
        if request.stream:
            raise InvalidRequestError(
                "prompt_logprobs come with a whole answer only; leave stream out.", param="prompt_logprobs"
            )


def sampling_params(
    request: GenerationRequest, *, max_tokens: int | None, max_tokens_field: str, **others: Any
) -> SamplingParams:
    """SamplingParams checks every range; only its name for the output limit may differ from the client's."""
    values = {name: value for name in _SAMPLING if (value := getattr(request, name)) is not None}
    choices = guided_choice(request.guided_choice, request.structured_outputs)
    try:
        return SamplingParams(max_tokens=max_tokens, guided_choice=choices, **values, **others)
    except InvalidRequestError as error:
        if error.param == "max_tokens" and max_tokens_field != "max_tokens":
            raise InvalidRequestError(
                str(error).replace("max_tokens", max_tokens_field, 1), param=max_tokens_field, code=error.code
            ) from None
        raise


def check_some_output(limit: int | None, field: str) -> None:
    if limit == 0:
        raise InvalidRequestError(f"{field} must be at least 1, got 0.", param=field)


def check_logprobs(field: str, value: int) -> None:
    if not 0 <= value <= MAX_LOGPROBS:
        raise InvalidRequestError(
            f"{field} must be between 0 and {MAX_LOGPROBS}, got {shown(value)}.", param=field
        )
