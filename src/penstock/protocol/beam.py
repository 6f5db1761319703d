"""Beam search over HTTP: the fields that ask for it, and those that make no sense beside it."""

from __future__ import annotations

from typing import Any

from penstock.engine.beam import MAX_BEAM_WIDTH, BeamSearchParams
from penstock.errors import InvalidRequestError
from penstock.protocol.decode import shown
from penstock.protocol.generation import GenerationRequest

# What a beam search neither samples with nor can show, and the values that ask for nothing.
_EXCLUDED: dict[str, tuple[Any, ...]] = {
    "stream": (False,),
    "temperature": (0, 1),
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "min_tokens": (0,),
    "stop": ([],),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "guided_choice": (),
    "structured_outputs": (),
    "prompt_logprobs": (),
    "logprobs": (False,),
    "echo": (False,),
}


def check_beam(request: GenerationRequest) -> None:
    """The rules between the fields; their ranges are checked by BeamSearchParams."""
    if not request.use_beam_search:
        for name, neutral in (("length_penalty", 1), ("early_stopping", False)):
            value = getattr(request, name)
            if value is not None and value != neutral:
                raise InvalidRequestError(f"{name} needs use_beam_search: true.", param=name)
        return
    for name, accepted in _EXCLUDED.items():
        value = getattr(request, name, None)
        if value is not None and not any(_same(value, entry) for entry in accepted):
            raise InvalidRequestError(
                f"{name} cannot be combined with use_beam_search, which looks for the likeliest answer; "
                "leave one of them out.",
                param=name,
            )


def _same(value: Any, entry: Any) -> bool:
    # In Python 0 == False; in JSON they are not the same.
    return bool(value == entry) and isinstance(value, bool) == isinstance(entry, bool)


def beam_params(
    request: GenerationRequest, *, width: int | None, max_tokens: int | None, max_tokens_field: str
) -> BeamSearchParams | None:
    """How to search, or None if the request samples. `width` None: as many beams as choices."""
    if not request.use_beam_search:
        return None
    n = 1 if request.n is None else request.n
    field = "n" if width is None else "best_of"
    width = n if width is None else width
    if not n <= width <= MAX_BEAM_WIDTH:
        raise InvalidRequestError(
            f"{field} is the number of beams and must be between {n if field == 'best_of' else 1} and "
            f"{MAX_BEAM_WIDTH}, got {shown(width)}.",
            param=field,
        )
    try:
        return BeamSearchParams(
            beam_width=width,
            n=n,
            max_tokens=max_tokens,
            length_penalty=1.0 if request.length_penalty is None else request.length_penalty,
            early_stopping=False if request.early_stopping is None else request.early_stopping,
            ignore_eos=bool(request.ignore_eos),
            stop_token_ids=tuple(request.stop_token_ids or ()),
        )
    except InvalidRequestError as error:
        if error.param != "max_tokens":
            raise
        raise InvalidRequestError(
            str(error).replace("max_tokens", max_tokens_field, 1), param=max_tokens_field
        ) from None
