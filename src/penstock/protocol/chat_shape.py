"""A generation as chat completions show it: messages, and deltas of messages."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from penstock.protocol import sse
from penstock.protocol.responses import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    ChatTokenLogprob,
    TopLogprob,
    Usage,
)
from penstock.protocol.shapes import Answered, Delta, Header, Position, finite, given


class ChatShape:
    def __init__(self, header: Header) -> None:
        self.header = header

    def opening(self, choices: int, prompt: list[int] | None = None) -> bytes:
        return b"".join(
            self._event(
                [ChatChunkChoice(index, ChatDelta(role="assistant", content=""))],
                prompt=prompt if index == 0 else None,
            )
            for index in range(choices)
        )

    def delta(self, delta: Delta) -> bytes:
        events = b""
        logprobs, ids = _chat_logprobs(delta.positions), given(delta.token_ids)
        if delta.reasoning:
            thought = ChatDelta(reasoning_content=delta.reasoning, reasoning=delta.reasoning)
            if delta.text:  # one token ended the one and began the other: it counts as the latter's
                events = self._event([ChatChunkChoice(delta.index, thought)])
            else:
                events = self._event([ChatChunkChoice(delta.index, thought, logprobs, token_ids=ids)])
                ids = UNSET
        if delta.text or (delta.positions and not delta.reasoning):
            content = ChatDelta(content=delta.text)
            events += self._event([ChatChunkChoice(delta.index, content, logprobs, token_ids=ids)])
            ids = UNSET
        if delta.finish_reason is not None:
            last = ChatChunkChoice(
                delta.index,
                ChatDelta(),
                finish_reason=delta.finish_reason,
                stop_reason=delta.stop_reason,
                token_ids=ids,
            )
            events += self._event([last])
        elif ids and not events:  # tokens that are not text yet
            events = self._event([ChatChunkChoice(delta.index, ChatDelta(content=""), token_ids=ids)])
        return events

    def closing(self) -> bytes:
        usage = self._event([], self.header.usage.message()) if self.header.include_usage else b""
        return usage + sse.DONE

    def whole(self, answers: Sequence[Answered]) -> ChatCompletion:
        header = self.header
        choices = [
            ChatChoice(
                answer.index,
                ChatMessage(
                    content=answer.text,
                    reasoning_content=given(answer.reasoning),
                    reasoning=given(answer.reasoning),
                ),
                answer.finish_reason,
                _chat_logprobs(answer.positions),
                answer.stop_reason,
                given(answer.token_ids),
            )
            for answer in answers
        ]
        return ChatCompletion(
            id=header.id,
            created=header.created,
            model=header.model,
            choices=choices,
            usage=header.usage.message(),
            system_fingerprint=header.system_fingerprint,
            prompt_logprobs=given(answers[0].prompt_logprobs),
            prompt_token_ids=given(answers[0].prompt_token_ids),
        )

    def _event(
        self,
        choices: list[ChatChunkChoice],
        usage: Usage | None = None,
        prompt: list[int] | None = None,
    ) -> bytes:
        header = self.header
        chunk = ChatChunk(
            id=header.id,
            created=header.created,
            model=header.model,
            choices=choices,
            system_fingerprint=header.system_fingerprint,
            usage=usage or header.chunk_usage(),
            prompt_token_ids=given(prompt),
        )
        return sse.event(chunk)


def _chat_logprobs(positions: list[Position] | None) -> ChatLogprobs | None:
    if positions is None:
        return None
    return ChatLogprobs(
        [
            ChatTokenLogprob(
                position.chosen.text,
                finite(position.chosen.logprob),
                list(position.chosen.raw),
                [TopLogprob(token.text, finite(token.logprob), list(token.raw)) for token in position.top],
            )
            for position in positions
        ]
    )
