"""One choice of an answer on its way to a client: text and logprobs as they go out, times measured."""

from __future__ import annotations

from penstock.engine.request import FinishReason as EngineReason
from penstock.engine.request import SamplingParams, TokenEvent, TokenLogprobs
from penstock.observe.metrics import Ending, Metrics
from penstock.protocol.errors import SERVER_ERROR, HTTPError
from penstock.protocol.responses import FinishReason
from penstock.protocol.shapes import Answered, Delta, Position, ScoredToken
from penstock.text.choice import Choice
from penstock.text.tokenizer import Tokenizer


class SentChoice:
    """Fed until `finish_reason` is set. `tokens` counts all that were generated for it, its end included."""

    def __init__(
        self, index: int, tokenizer: Tokenizer, params: SamplingParams, metrics: Metrics, arrived: float
    ) -> None:
        self.finish_reason: FinishReason | None = None
        self._choice = Choice(index, tokenizer, params)
        self._tokenizer = tokenizer
        self._positions: list[Position] | None = None if params.logprobs is None else []
        self._offset = 0  # characters of the tokens so far, as logprobs show them
        self._metrics = metrics
        self._arrived = arrived
        self._first = 0.0  # when its first and latest tokens came
        self._latest = 0.0
        self._counted = False

    @property
    def tokens(self) -> int:
        return len(self._choice.token_ids)

    @property
    def cut(self) -> bool:
        """Whether a stop string ended it, which the engine must be told."""
        return self._choice.cut

    def feed(self, event: TokenEvent, now: float) -> Delta:
        """Take the engine's next event for this choice. Raises HTTPError if the engine gave up on it."""
        self._time(len(event.token_ids), now)
        choice, shown = self._choice, len(self._choice.shown_ids)
        delta = Delta(choice.index, choice.take(event), None)
        if self._positions is not None:
            fresh = zip(choice.shown_ids[shown:], choice.logprobs[shown:], strict=True)
            delta.positions = [self._position(token, scores) for token, scores in fresh]
            self._positions += delta.positions
        if choice.finish_reason is not None:
            self._end(choice.finish_reason, event.error, now)
            delta.finish_reason, delta.stop_reason = self.finish_reason, choice.stop_reason
        return delta

    def answer(self) -> Answered:
        choice = self._choice
        assert self.finish_reason is not None, "a choice is answered after it ended"
        return Answered(choice.index, choice.text, self._positions, self.finish_reason, choice.stop_reason)

    def count(self, ending: Ending) -> None:
        """Count how it ended, once."""
        if not self._counted:
            self._counted = True
            self._metrics.finished[ending].inc()

    def _end(self, reason: EngineReason, error: str | None, now: float) -> None:
        if reason == "cancelled" or reason == "error":
            self.count("error")
            message = error or "The engine ended this request before it was complete."
            raise HTTPError(500, message, code="generation_failed", type=SERVER_ERROR)
        self.finish_reason = reason
        self.count(reason)
        self._metrics.request_latency.observe(now - self._arrived)
        if self.tokens > 1:
            self._metrics.time_per_output_token.observe((self._latest - self._first) / (self.tokens - 1))

    def _time(self, new: int, now: float) -> None:
        if not new:
            return
        if not self.tokens:
            self._first = now
            self._metrics.time_to_first_token.observe(now - self._arrived)
        else:
            self._metrics.inter_token_latency.observe((now - self._latest) / new)
        self._latest = now

    def _position(self, token: int, scores: TokenLogprobs) -> Position:
        chosen = self._scored(token, scores.chosen)
        top = [self._scored(other, score) for other, score in zip(scores.top_ids, scores.top, strict=True)]
        position = Position(chosen, top, self._offset)
        self._offset += len(chosen.text)
        return position

    def _scored(self, token: int, logprob: float) -> ScoredToken:
        return ScoredToken(self._tokenizer.token_text(token), self._tokenizer.token_bytes(token), logprob)
