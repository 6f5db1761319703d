"""One choice of an answer on its way to a client: text and logprobs as they go out, times measured."""

from __future__ import annotations

from penstock.engine.request import FinishReason as EngineReason
from penstock.engine.request import SamplingParams, TokenEvent
from penstock.errors import InvalidRequestError
from penstock.gateway.local.prompt import BYTES_PER_SCORE, EchoedPrompt, Shown
from penstock.gateway.local.scores import Scores
from penstock.observe.metrics import Ending, ModelMetrics
from penstock.protocol.errors import SERVER_ERROR, HTTPError
from penstock.protocol.responses import FinishReason
from penstock.protocol.shapes import Answered, Delta, Position, UsageCount
from penstock.text.choice import Choice
from penstock.text.reasoning import Reasoning
from penstock.text.tokenizer import Tokenizer


class SentChoice:
    """Fed until `finish_reason` is set. `tokens` counts all that were generated for it, its end included."""

    def __init__(
        self,
        index: int,
        tokenizer: Tokenizer,
        params: SamplingParams,
        prompt: EchoedPrompt,
        shown: Shown,
        reasoning: Reasoning | None,
        usage: UsageCount,
        metrics: ModelMetrics,
        arrived: float,
    ) -> None:
        self.finish_reason: FinishReason | None = None
        self._choice = Choice(index, tokenizer, params, prompt.ids, reasoning)
        self._prompt = prompt
        self._shown = shown
        self._scores = Scores(tokenizer, as_ids=shown.as_ids)
        self._token_text = tokenizer.token_text
        self._hidden = tokenizer.special_ids if params.skip_special_tokens else frozenset()
        self._positions: list[Position] | None = None if shown.logprobs is None else []
        self._placed = 0  # shown tokens that have their positions, or will have none
        self._offset = 0  # characters of the tokens so far, as logprobs show them
        self._begins = tokenizer.begins_text(prompt.ids)
        self.opened = False
        self._usage = usage  # of all choices together
        self._metrics = metrics
        self._arrived = arrived
        self.scheduled = 0.0  # when the engine began with it
        self.first = 0.0  # when its first and latest tokens came
        self.latest = 0.0
        self.preemptions = 0
        self.preempted_early = 0  # before its first token
        self._counted = False

    @property
    def tokens(self) -> int:
        return len(self._choice.token_ids)

    @property
    def scores_size(self) -> int:
        """About how many bytes its scores take in an answer."""
        alternatives = self._shown.logprobs
        return 0 if alternatives is None else BYTES_PER_SCORE * self.tokens * (alternatives + 1)

    @property
    def mean_logprob(self) -> float:
        return self._choice.mean_logprob

    @property
    def cut(self) -> bool:
        """Whether a stop string ended it, which the engine must be told."""
        return self._choice.cut

    def opening(self) -> Delta | None:
        """What comes before the first token: the prompt, if it is to be shown. To be asked once."""
        self.opened = True
        prompt, index = self._prompt, self._choice.index
        if not prompt.echoes:
            return None if prompt.token_ids is None else Delta(index, "", prompt_token_ids=prompt.token_ids)
        positions = prompt.positions
        self._offset = len(prompt.text)
        if self._positions is not None and positions is not None:
            self._positions += positions
        return Delta(index, prompt.text, positions, prompt_token_ids=prompt.token_ids)

    def feed(self, event: TokenEvent, now: float) -> Delta:
        """Take the engine's next event for this choice. Raises what ended it if the engine gave up on it."""
        choice, usage = self._choice, self._usage
        known, thought = len(choice.token_ids), choice.reasoning_tokens
        self.preemptions = event.preemptions
        if not known:
            usage.cached += event.cached_tokens
            self.scheduled, self.preempted_early = event.scheduled, event.preemptions
        if event.token_ids:
            self._time(len(event.token_ids), known, now)
        added = choice.take(event)
        usage.completion += len(choice.token_ids) - known
        if usage.reasoning is not None:
            usage.reasoning += choice.reasoning_tokens - thought
        delta = Delta(choice.index, added.text)
        if self._positions is not None:
            delta.positions = self._place()
        if self._shown.reasoning:
            delta.reasoning = added.reasoning
        if self._shown.token_ids:
            delta.token_ids = choice.token_ids[known:]
        if choice.finish_reason is not None:
            self._end(choice.finish_reason, event, now)
            delta.finish_reason, delta.stop_reason = self.finish_reason, choice.stop_reason
        return delta

    def answer(self, index: int) -> Answered:
        """All of it, as the client's choice number `index`."""
        choice, prompt = self._choice, self._prompt
        assert self.finish_reason is not None, "a choice is answered after it ended"
        return Answered(
            index,
            prompt.text + choice.text,
            self._positions,
            self.finish_reason,
            choice.stop_reason,
            choice.reasoning if self._shown.reasoning else None,
            choice.token_ids if self._shown.token_ids else None,
            prompt.token_ids,
            prompt.logprobs,
        )

    def count(self, ending: Ending) -> None:
        """Count how it ended, once."""
        if not self._counted:
            self._counted = True
            self._metrics.finished[ending].inc()

    def _end(self, reason: EngineReason, event: TokenEvent, now: float) -> None:
        if reason == "cancelled" or reason == "error":
            self.count("error")
            message = event.error or "The engine ended this request before it was complete."
            if event.invalid:
                raise InvalidRequestError(message)
            raise HTTPError(500, message, code="generation_failed", type=SERVER_ERROR)
        self.finish_reason = reason
        self.count(reason)
        self._metrics.request_latency.observe(now - self._arrived)
        if self.scheduled and self.first:
            self._metrics.queue_time.observe(max(0.0, self.scheduled - self._arrived))
            self._metrics.prefill_time.observe(max(0.0, self.first - self.scheduled))
            self._metrics.decode_time.observe(self.latest - self.first)
        if self.tokens > 1:
            self._metrics.time_per_output_token.observe((self.latest - self.first) / (self.tokens - 1))

    def _time(self, new: int, known: int, now: float) -> None:
        if not known:
            self.first = now
            self._metrics.time_to_first_token.observe(now - self._arrived)
        else:
            self._metrics.inter_token_latency.observe((now - self.latest) / new)
        self.latest = now

    def _place(self) -> list[Position] | None:
        """Positions of the tokens that have become known since the last time."""
        if self._positions is None or self._shown.logprobs is None:
            return None
        choice = self._choice
        if not self._shown.reasoning:
            # The scores of reasoning that is left out would give it away.
            if not choice.answering and choice.finish_reason is None:
                return []
            self._placed = max(self._placed, choice.reasoning_tokens)
        fresh = []
        for at in range(self._placed, len(choice.shown_ids)):
            token = choice.shown_ids[at]
            fresh.append(
                self._scores.position(token, choice.logprobs[at], self._offset, self._shown.logprobs)
            )
            if token not in self._hidden and (text := self._token_text(token)):
                # The space that a text of its own begins with is a token's, but not the text's.
                self._offset += len(text.removeprefix(" ") if self._begins else text)
                self._begins = False
        self._placed = len(choice.shown_ids)
        self._positions += fresh
        return fresh
