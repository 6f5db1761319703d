"""Prompts held to the model's context: cut where the client allows it, refused where they do not fit."""

from __future__ import annotations

from penstock.errors import ContextLengthError, InvalidRequestError
from penstock.protocol.generation import GenerationRequest

# Tokens of prompts with their scored alternatives, in one answer: they come all at once.
MAX_PROMPT_SCORES = 262144


def check_prompt_scores(tokens: int, each: int, field: str) -> None:
    """Refuse an answer with more scores than can be written out at once: `each` for every prompt token."""
    if tokens * each > MAX_PROMPT_SCORES:
        raise InvalidRequestError(
            f"{field} asks for {tokens * each} scores of {tokens} prompt tokens; an answer has at most "
            f"{MAX_PROMPT_SCORES}. Send fewer or shorter prompts, or ask for fewer alternatives or choices.",
            param=field,
        )


def truncated(ids: list[int], request: GenerationRequest, context: int, max_tokens: int | None) -> list[int]:
    """The part of a prompt that the client wants to keep: all of it unless it is longer than that."""
    keep = request.truncate_prompt_tokens
    if keep == -1:
        # Where the answer leaves no room, the context is refused later.
        keep = max(1, context - (1 if max_tokens is None else max_tokens))
    if keep is None or len(ids) <= keep:
        return ids
    return ids[:keep] if request.truncation_side == "right" else ids[-keep:]


def check_context(
    prompt_tokens: int, max_tokens: int | None, context: int, *, prompt: str, field: str
) -> None:
    """Refuse what cannot fit: the prompt must leave room for one token, and for all that were asked for."""
    room = 0 if max_tokens == 0 else 1
    if prompt_tokens + room > context:
        needs = " and the answer needs room too" if room else ""
        raise ContextLengthError(
            f"The prompt has {prompt_tokens} tokens, but the model's context is {context} tokens{needs}. "
            "Shorten the prompt.",
            param=prompt,
        )
    if max_tokens is not None and prompt_tokens + max_tokens > context:
        raise ContextLengthError(
            f"The prompt has {prompt_tokens} tokens and {field} asks for {max_tokens}, together "
            f"{prompt_tokens + max_tokens}, but the model's context is {context} tokens. "
            f"Shorten the prompt or ask for at most {context - prompt_tokens}.",
            param=field,
        )
