"""Every request field of OpenAI's and vLLM's API that Penstock knows but does not act on.

One table decides. A field is either *ignored*, because leaving it out changes nothing
the client can see, or *refused*, because ignoring it would give another answer than the
one asked for. A refused field is accepted at its neutral values: those ask for nothing.
What is obeyed is declared in `chat.py` and `completion.py`; any other name is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta

from penstock.errors import InvalidRequestError
from penstock.protocol.plain import check_plain

S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Ignored:
    name: str
    type: Any
    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    name: str
    neutral: tuple[Any, ...]  # null is always neutral too
    instead: str = ""  # what to do, as a sentence


Field = Ignored | Refused

_TOOLS = "This server does not call tools yet."
_GRAMMAR = "Of constrained output there is guided_choice."
_MEDIA = "The model is text-only."

SHARED: tuple[Field, ...] = (
    # OpenAI
    Ignored("user", str, "Names the end user; nothing depends on it."),
    Ignored("store", bool, "Nothing is stored."),
    Ignored("metadata", dict[str, str], "Kept by OpenAI beside stored completions; nothing is stored."),
    Ignored("service_tier", str, "There is one tier."),
    # vLLM
    Ignored("request_id", str, "Use the X-Request-Id header."),
    Ignored("session_id", str, "A routing hint; there is one engine."),
    Ignored("return_token_offsets", bool, "Only used by vLLM's render endpoints."),
    Ignored("return_mm_kwargs", bool, "Only used by vLLM's render endpoints."),
    Refused("response_format", ({"type": "text"},), _GRAMMAR),
    Refused("guided_json", (), _GRAMMAR),
    Refused("guided_regex", (), _GRAMMAR),
    Refused("guided_grammar", (), _GRAMMAR),
    Refused("guided_decoding_backend", (), _GRAMMAR),
    Refused("guided_whitespace_pattern", (), _GRAMMAR),
    Refused("structural_tag", (), _GRAMMAR),
    Refused("logprob_token_ids", ([],), "Use top_logprobs."),
    Refused(
        "logits_processors",
        ([],),
        "They are code, which only the Python API takes; use logit_bias, bad_words or allowed_token_ids.",
    ),
    Refused("watermarking", (False,)),
    Refused("spaces_between_special_tokens", (True,)),
    Refused("routed_experts_prompt_start", (0,)),
    Refused("stream_interval", (1,)),
    Refused("repetition_detection", (), "Use repetition_penalty or frequency_penalty."),
    Refused("thinking_token_budget", (-1,), "Use max_tokens, which counts reasoning too."),
    Refused("kv_transfer_params", ({},)),
    Refused("ec_transfer_params", ({},)),
    Refused("vllm_xargs", ({},)),
)

CHAT: tuple[Field, ...] = (
    *SHARED,
    # OpenAI
    Ignored("safety_identifier", str, "Names the end user; nothing depends on it."),
    Ignored("prompt_cache_key", str, "A routing hint; prefixes are cached anyway."),
    Ignored("prompt_cache_retention", str, "Prefixes stay cached until their memory is needed."),
    Ignored("prompt_cache_options", dict[str, Any], "Prefixes are cached anyway."),
    Ignored("parallel_tool_calls", bool, "Means nothing without tools."),
    Refused("tools", ([],), _TOOLS),
    Refused("tool_choice", ("none", "auto"), _TOOLS),
    Refused("functions", ([],), _TOOLS),
    Refused("function_call", ("none", "auto"), _TOOLS),
    Refused("web_search_options", (), _TOOLS),
    Refused("audio", (), _MEDIA),
    Refused("modalities", (["text"],), _MEDIA),
    Refused("media_io_kwargs", ({},), _MEDIA),
    Refused("mm_processor_kwargs", ({},), _MEDIA),
    Refused("prediction", ()),
    Refused("moderation", ()),
    Refused("reasoning_effort", ("none",), "Use chat_template_kwargs, where the model's template knows one."),
    Refused("verbosity", ("medium",), "Say in the prompt how long the answer should be."),
    # vLLM
    Refused("best_of", (1,), "Ask for n choices and keep the best one."),
    Refused("echo", (False,), "Put the last message in front of the answer yourself."),
    Refused("documents", ([],), "Put the documents into a message."),
    Refused("chat_template", (), "A template is code; the server uses the model's own."),
    Refused("add_special_tokens", (False,), "The chat template adds them."),
    Refused("return_prompt_text", (False,)),
)

COMPLETION: tuple[Field, ...] = (
    *SHARED,
    Refused(
        "suffix",
        ("",),
        "Text is only continued; for a model trained to fill in, put its own markers into the prompt.",
    ),
    Refused("prompt_embeds", ()),
)

TOKENIZE: tuple[Field, ...] = (
    Refused("tools", ([],), _TOOLS),
    Refused("chat_template", (), "A template is code; the server uses the model's own."),
    Refused("media_io_kwargs", ({},), _MEDIA),
    Refused("mm_processor_kwargs", ({},), _MEDIA),
)


def with_fields(base: type[S], fields: Iterable[Field]) -> type[S]:
    """`base` with the table's fields added, so that one decoding pass knows every name."""
    declared = [(field.name, _annotation(field), None) for field in fields]
    wire = msgspec.defstruct(
        base.__name__,
        declared,
        bases=(base,),
        kw_only=True,
        forbid_unknown_fields=True,
        module=base.__module__,
    )
    wire.__doc__ = base.__doc__
    return cast("type[S]", wire)


def refuse(request: msgspec.Struct, fields: Iterable[Field]) -> None:
    """Raise for the first refused field that asks for something, or ignored one that is not plain."""
    for field in fields:
        value = getattr(request, field.name)
        if isinstance(field, Ignored):
            check_plain(value, field.name)
        else:
            if value is not None and not _is_neutral(value, field.neutral):
                advice = f" {field.instead}" if field.instead else ""
                raise InvalidRequestError(
                    f"{field.name} is not supported.{advice}", param=field.name, code="unsupported_parameter"
                )


def _is_neutral(value: Any, neutral: tuple[Any, ...]) -> bool:
    # The types are compared too: in Python 0 == False and 1 == True, in JSON they are not the same.
    return any(type(value) is type(entry) and value == entry for entry in neutral)


def _annotation(field: Field) -> Any:
    if isinstance(field, Ignored):
        return Annotated[field.type, Meta(description=f"Ignored. {field.why}")] | None
    accepted = [*field.neutral, None]
    meta = Meta(description=f"Not supported. {field.instead}".strip(), extra_json_schema={"enum": accepted})
    return Annotated[Any, meta]
