"""The usage that a server reports, in the three spellings there are, as one count."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from penstock.protocol.shapes import UsageCount

Count = Annotated[int, msgspec.Meta(ge=0)]


class _Details(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class Reported(msgspec.Struct, gc=False):
    """Chat and completions say prompt and completion; Responses and Messages say input and output."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None

    @property
    def prompt(self) -> int | None:
        return self.prompt_tokens if self.prompt_tokens is not None else self.input_tokens

    @property
    def completion(self) -> int | None:
        return self.completion_tokens if self.completion_tokens is not None else self.output_tokens

    def count(self, guess: UsageCount) -> UsageCount:
        """What it says, and by `guess` what it does not: an answer is not free because nobody counted it."""
        prompt, completion, total = self.prompt, self.completion, self.total_tokens or 0
        if completion is None:
            # Rerank and score have none, and may tell only the total.
            completion = max(0, total - prompt) if prompt is not None else 0
            completion = completion or guess.completion
        # Messages counts what was read from and written to the cache apart from the input.
        read = self.cache_read_input_tokens or 0
        apart = read + (self.cache_creation_input_tokens or 0)
        if prompt is not None:
            prompt += apart
        else:
            prompt = max(0, total - completion) or max(guess.prompt, apart)
        details = self.prompt_tokens_details or self.input_tokens_details
        cached = details.cached_tokens if details is not None else read
        made = self.completion_tokens_details or self.output_tokens_details
        reasoning = made.reasoning_tokens if made is not None else None
        return UsageCount(prompt, completion, min(cached or 0, prompt), reasoning)


encode: Final = msgspec.json.Encoder().encode
