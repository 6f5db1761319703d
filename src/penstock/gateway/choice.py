"""One choice of an answer: token events in, text and logprobs out, with its times measured."""

from __future__ import annotations

from penstock.engine.request import SamplingParams, TokenEvent, TokenLogprobs
from penstock.observe.metrics import Ending, Metrics
from penstock.protocol.errors import SERVER_ERROR, HTTPError
from penstock.protocol.responses import FinishReason, StopReason
from penstock.protocol.shapes import Answered, Delta, Position, ScoredToken
from penstock.text.stream import TextStream
from penstock.text.tokenizer import Tokenizer


class Choice:
    """Fed until `finish_reason` is set. `tokens` counts all that were generated for it, its end included."""

    def __init__(
        self, index: int, tokenizer: Tokenizer, params: SamplingParams, metrics: Metrics, arrived: float
    ) -> None:
        self.index = index
        self.tokens = 0
        self.finish_reason: FinishReason | None = None
        self._stop_reason: StopReason | None = None
        self._tokenizer = tokenizer
        self._params = params
        self._stream = TextStream(tokenizer, params)
        self._positions: list[Position] | None = None if params.logprobs is None else []
        self._offset = 0  # characters of the tokens so far, as logprobs show them
        self._metrics = metrics
        self._arrived = arrived
        self._first = 0.0  # when its first and latest tokens came
        self._latest = 0.0
        self._counted = False

    def feed(self, event: TokenEvent, now: float) -> Delta:
        """Take the engine's next event for this choice. Raises HTTPError if the engine gave up on it."""
        self._time(len(event.token_ids), now)
        delta = Delta(self.index, "", None if self._positions is None else [])
        for number, token in enumerate(event.token_ids):
            self.tokens += 1
            # The token that ended it comes last and is not part of the text.
            if token == event.stop_token and number == len(event.token_ids) - 1 and not self._shows(token):
                break
            delta.text += self._stream.push(token)
            if delta.positions is not None:
                delta.positions.append(self._position(token, event.logprobs[number]))
            if self._stream.stopped is not None:
                break
        if event.finish_reason is not None and self._stream.stopped is None:
            delta.text += self._stream.finish()
        if self._stream.stopped is not None:
            self._end("stop", self._stream.stopped, now)
        elif event.finish_reason is not None:
            self._end_as(event, now)
        delta.finish_reason = self.finish_reason
        delta.stop_reason = self._stop_reason
        if self._positions is not None and delta.positions:
            self._positions += delta.positions
        return delta

    def answer(self) -> Answered:
        assert self.finish_reason is not None, "a choice is answered after it ended"
        return Answered(self.index, self._stream.text, self._positions, self.finish_reason, self._stop_reason)

    def count(self, ending: Ending) -> None:
        """Count how it ended, once."""
        if not self._counted:
            self._counted = True
            self._metrics.finished[ending].inc()

    def _end_as(self, event: TokenEvent, now: float) -> None:
        match event.finish_reason:
            case "stop":
                named = event.stop_token in self._params.stop_token_ids
                self._end("stop", event.stop_token if named else None, now)
            case "length":
                self._end("length", None, now)
            case _:
                self.count("error")
                message = event.error or "The engine ended this request before it was complete."
                raise HTTPError(500, message, code="generation_failed", type=SERVER_ERROR)

    def _end(self, reason: FinishReason, stop: StopReason | None, now: float) -> None:
        self.finish_reason = reason
        self._stop_reason = stop
        self.count(reason)
        self._metrics.request_latency.observe(now - self._arrived)
        if self.tokens > 1:
            self._metrics.time_per_output_token.observe((self._latest - self._first) / (self.tokens - 1))

    def _shows(self, token: int) -> bool:
        """A stop token of the client's own choosing is shown if stops are to be included."""
        return self._params.include_stop_str_in_output and token in self._params.stop_token_ids

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
        position = Position(chosen, top[: self._params.logprobs], self._offset)
        self._offset += len(chosen.text)
        return position

    def _scored(self, token: int, logprob: float) -> ScoredToken:
        return ScoredToken(self._tokenizer.token_text(token), self._tokenizer.token_bytes(token), logprob)
