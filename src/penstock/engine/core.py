"""The loop's body: receive, schedule, run, emit. `LLM`, the server and the benchmarks all drive this."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from penstock.engine.config import EngineConfig, EngineInfo, Task
from penstock.engine.failures import FailedSteps
from penstock.engine.memory.manager import KVMemory
from penstock.engine.pooling import decoder_pooling
from penstock.engine.request import EngineStats, Request, TokenEvent
from penstock.engine.run.loading import load_model
from penstock.engine.run.runner import Runner, StepResult
from penstock.engine.run.sizing import choose_device, size_engine
from penstock.engine.run.step import Room
from penstock.engine.schedule.scheduler import Limits, Scheduler, StepPlan
from penstock.engine.schedule.sequence import LogitsProcessor
from penstock.engine.schedule.sequence import Sequence as LiveSequence
from penstock.errors import InvalidRequestError


class EngineCore:
    """One model. Not thread-safe: one caller submits, cancels and steps."""

    def __init__(self, config: EngineConfig, clock: Callable[[], float] = time.monotonic) -> None:
        began = time.perf_counter()
        device = choose_device(config.device)
        config.check_device(device.type)
        pooling = decoder_pooling(config.pooling, Path(config.model))
        model, quantization = load_model(
            config.model,
            device,
            config.precision,
            generates=pooling is None,
            threads=config.threads,
            load_format=config.load_format,
        )
        size = size_engine(config, model)
        tasks: tuple[Task, ...] = ("generate",) if model.config.has_head else ()
        self._clock = clock
        room = Room(size.num_blocks, size.block_size, size.max_step_tokens, size.max_model_len)
        self._runner = Runner(model, room, size.max_running)
        memory = KVMemory(size.num_blocks, size.block_size, prefix_caching=config.prefix_caching)
        limits = Limits(
            max_running=size.max_running,
            max_waiting=config.max_waiting,
            max_step_tokens=size.max_step_tokens,
            max_model_len=size.max_model_len,
            arrival_window=config.arrival_window,
            ageing_seconds=config.ageing_seconds,
        )
        self._scheduler = Scheduler(limits, memory)
        self._stats = EngineStats(blocks_total=size.num_blocks)
        self._failed_steps = FailedSteps()
        self.info = EngineInfo(
            architecture=model.config.architecture,
            device=str(device),
            precision=model.precision,
            quantization=quantization,
            vocab_size=model.config.vocab_size,
            max_model_len=size.max_model_len,
            max_running=size.max_running,
            max_step_tokens=size.max_step_tokens,
            block_size=size.block_size,
            num_blocks=size.num_blocks,
            weight_bytes=model.weight_bytes,
            weight_count=model.weight_count,
            load_seconds=time.perf_counter() - began,
            tasks=(*tasks, "embed", "score") if pooling else tasks,
            pooling=pooling,
            embedding_size=model.config.hidden_size if pooling else 0,
        )

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def submit(self, request: Request, processors: tuple[LogitsProcessor, ...] = ()) -> None:
        """Accept a request, or raise InvalidRequestError or QueueFullError.

        Processors change the logits of each of its tokens, after everything `params` says.
        """
        if request.id in self._scheduler:
            raise InvalidRequestError(f"A request with the id {request.id!r} is already being served.")
        needs_logits = request.pooling is None or request.params.prompt_logprobs is not None
        if needs_logits and "generate" not in self.info.tasks:
            raise InvalidRequestError(
                "This model gives vectors and scores, and does not generate: it has no output matrix."
            )
        if request.pooling not in (None, "last", "mean"):
            raise InvalidRequestError(
                f"A decoder's hidden states are pooled by last or mean, not by {request.pooling}.",
                param="pooling",
            )
        self.info.check_tokens("prompt", request.prompt)
        for name, texts in (("bad_words", request.bad_words), ("guided_choice", request.guided)):
            for ids in texts:
                self.info.check_tokens(name, ids)
        request.params.check_vocabulary(self.info.vocab_size)
        if request.params.seed is None:
            request = replace(request, params=replace(request.params, seed=secrets.randbits(63)))
        # A tokenizer may name ends of text that the model's output has no row for.
        ends = tuple(token for token in request.eos_token_ids if 0 <= token < self.info.vocab_size)
        self._scheduler.submit(replace(request, eos_token_ids=ends), self._clock(), processors)

    def cancel(self, request_id: str, index: int | None = None) -> list[TokenEvent]:
        """Stop a request or one of its choices; their last events. Unknown ids are no error."""
        ended = self._scheduler.cancel(request_id, index)
        return [TokenEvent(request_id=request_id, index=s.index, finish_reason="cancelled") for s in ended]

    def step(self) -> list[TokenEvent]:
        """Compute one step; the tokens it gave. Sleeps out the arrival window if nothing else is to do."""
        plan = self._scheduler.schedule(self._clock())
        if not plan.grants:
            if plan.wake_at is not None:
                time.sleep(max(0.0, plan.wake_at - self._clock()))
            return []
        try:
            result = self._runner.collect(self._runner.launch(plan))
        except Exception as error:
            return self._fail(plan, error)
        self._failed_steps.clear()
        # Before the scheduler takes the results: those who finish give their blocks back.
        self._count(plan, result)
        computed = self._scheduler.complete(plan, result.tokens, failed=result.failures)
        return [_event(sequence, result) for sequence in computed]

    def stats(self) -> EngineStats:
        scheduler, memory = self._scheduler, self._scheduler.memory
        return replace(
            self._stats,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            blocks_free=memory.num_free,
            blocks_cached=memory.num_cached,
            prefix_queries=scheduler.prefix_queries,
            prefix_hits=scheduler.prefix_hits,
            preemptions=scheduler.preemptions,
        )

    def check(self) -> None:
        """Assert that no block, slot or sequence was lost; meant for idle moments and tests."""
        self._scheduler.check()

    def _count(self, plan: StepPlan, result: StepResult) -> None:
        stats = self._stats
        stats.steps += 1
        stats.generated_tokens += len(result.tokens)
        # A prompt counts once, with its first token, however often it was chunked, preempted or forked.
        first = [g.sequence for g in plan.grants if g.completes and not g.sequence.num_output]
        stats.prompt_tokens += sum(s.prompt_len for s in first if s.origin is None)
        allocated, used = self._scheduler.kv_tokens()
        stats.kv_allocated_tokens += allocated
        stats.kv_used_tokens += used + plan.num_tokens

    def _fail(self, plan: StepPlan, error: Exception) -> list[TokenEvent]:
        """The device failed: end the step's requests, keep the others. Re-raise when it keeps failing."""
        self._stats.failed_steps += 1
        message = self._failed_steps.add(error)
        events = []
        for grant in plan.grants:
            sequence = grant.sequence
            self._scheduler.cancel(sequence.request.id, sequence.index)
            events.append(
                TokenEvent(
                    request_id=sequence.request.id, index=sequence.index, finish_reason="error", error=message
                )
            )
        return events


def _event(sequence: LiveSequence, result: StepResult) -> TokenEvent:
    event = TokenEvent(
        request_id=sequence.request.id,
        index=sequence.index,
        finish_reason=sequence.finish_reason,
        stop_token=sequence.stop_token,
        cached_tokens=sequence.cached,
    )
    if sequence.finish_reason == "error":
        failure = result.failures[sequence]
        event.error, event.invalid = failure.sentence, failure.invalid
        return event
    event.prompt_logprobs = result.prompt_logprobs.get(sequence, [])
    event.embedding = result.vectors.get(sequence, b"")
    if sequence.generates:
        event.token_ids = [sequence.tokens[-1]]
    if sequence in result.logprobs:
        event.logprobs = [result.logprobs[sequence]]
    return event
