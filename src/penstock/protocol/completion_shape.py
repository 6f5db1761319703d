"""A generation as text completions show it: text, with the prompt in front if it is echoed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UnsetType

from penstock.protocol import sse
from penstock.protocol.responses import Completion, CompletionChoice, CompletionLogprobs, Usage
from penstock.protocol.shapes import Answered, Delta, Header, Position, finite, given


class CompletionShape:
    def __init__(self, header: Header) -> None:
        self.header = header

    def opening(self, choices: int, prompt: list[int] | None = None) -> bytes:
        return b""

    def delta(self, delta: Delta) -> bytes:
        ids = delta.token_ids or delta.prompt_token_ids
        if not (delta.text or delta.positions or delta.finish_reason or ids):
            return b""
        choice = CompletionChoice(
            delta.index,
            delta.text,
            _completion_logprobs(delta.positions),
            delta.finish_reason,
            delta.stop_reason,
            token_ids=given(delta.token_ids),
            prompt_token_ids=given(delta.prompt_token_ids),
        )
        return sse.event(self._message([choice], self.header.chunk_usage()))

    def closing(self) -> bytes:
        header = self.header
        usage = sse.event(self._message([], header.usage.message())) if header.include_usage else b""
        return usage + sse.DONE

    def whole(self, answers: Sequence[Answered]) -> Completion:
        choices = [
            CompletionChoice(
                answer.index,
                answer.text,
                _completion_logprobs(answer.positions),
                answer.finish_reason,
                answer.stop_reason,
                given(answer.token_ids),
                given(answer.prompt_logprobs),
                given(answer.prompt_token_ids),
            )
            for answer in answers
        ]
        return self._message(choices, self.header.usage.message())

    def _message(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> Completion:
        header = self.header
        return Completion(
            id=header.id,
            created=header.created,
            model=header.model,
            choices=choices,
            system_fingerprint=header.system_fingerprint,
            usage=usage,
        )


def _completion_logprobs(positions: list[Position] | None) -> CompletionLogprobs | None:
    if positions is None:
        return None
    return CompletionLogprobs(
        tokens=[position.chosen.text for position in positions],
        token_logprobs=[
            None if position.chosen.logprob is None else finite(position.chosen.logprob)
            for position in positions
        ],
        # The chosen token is always among them, even when it was not one of the likeliest.
        top_logprobs=[
            None
            if position.chosen.logprob is None
            else {token.text: finite(token.logprob) for token in (*position.top, position.chosen)}
            for position in positions
        ],
        text_offset=[position.offset for position in positions],
    )
