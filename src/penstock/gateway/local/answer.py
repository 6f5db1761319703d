"""Reading a generation to its end, and giving it away: as it comes, or whole."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

import msgspec

from penstock.engine.request import TokenEvent
from penstock.gateway.exchange import Exchange, Watch
from penstock.gateway.local.choice import SentChoice
from penstock.gateway.local.generation import Generation
from penstock.gateway.local.model import ServedModel
from penstock.gateway.local.prepare import Prepared
from penstock.gateway.local.prompt import BYTES_PER_SCORE, EchoedPrompt
from penstock.gateway.local.scores import Scores
from penstock.observe.metrics import Ending, ModelMetrics
from penstock.observe.record import RequestRecord
from penstock.protocol.shapes import Answered, Delta, Shape
from penstock.text.choice import best

# Longer than an engine that hangs stays unnoticed: until the stream is open, another one can answer it.
OPENING_SECONDS = 10.0


class Answer:
    def __init__(
        self,
        model: ServedModel,
        metrics: ModelMetrics,
        generation: Generation,
        shape: Shape,
        prepared: Prepared,
        arrived: float,
        watch: Watch | None = None,
    ) -> None:
        tokenizer, params, shown = model.tokenizer, prepared.params, prepared.shown
        scores = Scores(tokenizer, as_ids=shown.as_ids)
        self._model = model
        self._generation = generation
        self._watch = watch
        self._shape = shape
        self._n = params.n
        self._returned = prepared.returned
        self._usage = shape.header.usage
        self._usage.prompt = prepared.prompt_tokens
        self._usage.reasoning = None if prepared.reasoning is None else 0
        self._prompts = [EchoedPrompt(prompt, shown, scores) for prompt in prepared.prompts]
        self._scored = any(prompt.scores_size for prompt in self._prompts)
        # Of several prompts the choices are numbered on: those of the first, then of the second.
        self._choices = [
            SentChoice(
                index,
                tokenizer,
                params,
                self._prompts[index // self._n],
                shown,
                prepared.reasoning,
                self._usage,
                metrics,
                arrived,
            )
            for index in range(self._n * len(self._prompts))
        ]
        self._open = len(self._choices)

    async def whole(self, exchange: Exchange) -> None:
        while self._open:
            await self._next()
        # The choices share what is shown of their prompt, but it is written out for each of them.
        size = self._n * sum(prompt.scores_size for prompt in self._prompts)
        size += sum(choice.scores_size for choice in self._choices)
        exchange.charge(self._usage)
        await exchange.answer(await self._model.written(size, self._whole), self._usage)

    async def stream(self, exchange: Exchange) -> None:
        # The engine may still refuse, which takes another status than 200; its word comes with the
        # first token at the latest. A client that waits longer sees the stream open.
        await self._generation.wait(OPENING_SECONDS)
        self._generation.check()
        await exchange.start_stream()
        usage, delivered = self._usage, exchange.delivered
        delivered.prompt = usage.prompt
        data = self._shape.opening(len(self._choices), self._prompts[0].token_ids)
        while self._open:
            if data:
                delivered.cached = usage.cached
                await exchange.write(data, usage.completion - delivered.completion)
            deltas = await self._next()
            if self._scored:  # they may have a prompt's scores, which come all at once
                scores = sum(len(delta.positions or ()) for delta in deltas)
                data = await self._model.written(BYTES_PER_SCORE * scores, partial(self._events, deltas))
            else:
                data = self._events(deltas)
        delivered.cached = usage.cached
        exchange.charge(usage)
        await exchange.end_stream(data + self._shape.closing(), usage.completion - delivered.completion)

    def count_unfinished(self, ending: Ending) -> None:
        for choice in self._choices:
            choice.count(ending)

    def note(self, record: RequestRecord) -> None:
        """When the engine had what, of all choices together."""
        choices = [choice for choice in self._choices if choice.first]
        if choices:
            record.scheduled = min(choice.scheduled for choice in choices)
            record.first_token = min(choice.first for choice in choices)
            record.last_token = max(choice.latest for choice in choices)
        record.preemptions += sum(choice.preemptions for choice in self._choices)
        record.preempted_early += sum(choice.preempted_early for choice in self._choices)

    async def _next(self) -> list[Delta]:
        events = await self._generation.next()
        if self._scored:
            for position, event in events:
                if event.prompt_logprobs:
                    prompt = self._prompts[position]
                    await self._model.written(
                        prompt.scores_size, partial(prompt.score, event.prompt_logprobs)
                    )
        return self._deltas(events)

    def _events(self, deltas: list[Delta]) -> bytes:
        return b"".join([self._shape.delta(delta) for delta in deltas])

    def _whole(self) -> bytes:
        return msgspec.json.encode(self._shape.whole(self._best()))

    def _best(self) -> list[Answered]:
        """The choices to return of each prompt: all, or those of the highest mean log-probability."""
        answers: list[Answered] = []
        for start in range(0, len(self._choices), self._n):
            choices = best(self._choices[start : start + self._n], self._returned)
            answers += [choice.answer(len(answers) + place) for place, choice in enumerate(choices)]
        return answers

    def _deltas(self, events: Iterable[tuple[int, TokenEvent]]) -> list[Delta]:
        now = time.monotonic()
        deltas: list[Delta] = []
        for position, event in events:
            prompt = self._prompts[position]
            if prompt.waits:
                for released in prompt.release(event):
                    self._feed(position, released, now, deltas)
            else:
                self._feed(position, event, now, deltas)
        return deltas

    def _feed(self, position: int, event: TokenEvent, now: float, deltas: list[Delta]) -> None:
        choice = self._choices[position * self._n + event.index]
        if choice.finish_reason is not None:
            return  # the engine's word on a choice that a stop string had ended before
        if not choice.opened and (opening := choice.opening()) is not None:
            deltas.append(opening)
        delta = choice.feed(event, now)
        if self._watch is not None:
            for scores in event.logprobs:
                self._watch.token(scores.chosen)
        deltas.append(delta)
        if delta.finish_reason is not None:
            self._open -= 1
            if choice.cut:
                self._generation.cancel_choice(position, event.index)
