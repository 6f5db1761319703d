"""One step after another: plan, launch, take the results; and what to do when the device cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from penstock.engine.failures import TOO_LARGE, FailedSteps, OutOfDeviceMemory, log_shortage
from penstock.engine.request import EngineStats, TokenEvent
from penstock.engine.run.runner import StepResult
from penstock.engine.schedule.plan import StepPlan
from penstock.engine.schedule.scheduler import Scheduler
from penstock.engine.schedule.sequence import Sequence


class Device(Protocol):
    """Computes steps in the order in which they are launched: what a step reads, all before it have written.

    `launch` and `collect` raise OutOfDeviceMemory where the step must be cut smaller.
    """

    @property
    def overlaps(self) -> bool:
        """Whether a launched step goes on by itself: the next may be launched before it is collected."""

    def launch(self, plan: StepPlan, /) -> Any:
        """Begin a step; what `collect` is to be given."""

    def collect(self, launched: Any, /) -> StepResult:
        """What came of a step, once it is done."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step that the device was given and whose results have not been taken yet."""

    plan: StepPlan
    launched: Any
    overlapped: bool  # launched while another was in flight


class Loop:
    """Drives a scheduler and a device. At most one step is in flight between two calls of `step`."""

    def __init__(self, scheduler: Scheduler, device: Device, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._device = device
        self._clock = clock
        self._stats = EngineStats(blocks_total=scheduler.memory.num_blocks)
        self._failed_steps = FailedSteps()
        self._flight: _Flight | None = None

    @property
    def has_work(self) -> bool:
        return self._flight is not None or self._scheduler.has_work

    def step(self) -> list[TokenEvent]:
        """Compute one step; the tokens it gave. Sleeps out the arrival window if nothing else is to do.

        Where the device works by itself, it is given this step while it computes the one before, and it
        is that one's tokens that are returned.
        """
        events: list[TokenEvent] = []
        if self._flight is not None and (
            self._flight.plan.needs_known_tokens or not self._scheduler.size.overlaps
        ):
            events = self._land()
        plan = self._scheduler.schedule(self._clock())
        if not plan.grants:
            if self._flight is not None:
                return self._land()
            if plan.wake_at is not None and not events:
                time.sleep(max(0.0, plan.wake_at - self._clock()))
            return events
        overlapped = self._flight is not None
        try:
            launched = self._device.launch(plan)
        except OutOfDeviceMemory as error:
            self._scheduler.retract(plan)
            return [*events, *self._land(), *self._shrink(plan, error, overlapped=overlapped)]
        except Exception as error:
            return [*events, *self._land(), *self._fail(plan, error)]
        allocated, used = self._scheduler.kv_tokens()
        self._stats.kv_allocated_tokens += allocated
        self._stats.kv_used_tokens += used
        flight = _Flight(plan, launched, overlapped)
        if self._device.overlaps:
            events += self._land(behind=flight)
        else:
            self._flight = flight
            events += self._land()
        return events

    def stats(self) -> EngineStats:
        scheduler, memory = self._scheduler, self._scheduler.memory
        return replace(
            self._stats,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            blocks_free=memory.num_free,
            blocks_cached=memory.num_cached,
            prompt_tokens=scheduler.prompt_tokens,
            generated_tokens=scheduler.generated_tokens,
            prefix_queries=scheduler.prefix_queries,
            prefix_hits=scheduler.prefix_hits,
            preemptions=scheduler.preemptions,
        )

    def _land(self, behind: _Flight | None = None) -> list[TokenEvent]:
        """Take the results of the step in flight, if one is; `behind` it another may be, which then is."""
        flight, self._flight = self._flight, behind
        if flight is None:
            return []
        try:
            result = self._device.collect(flight.launched)
        except Exception as error:
            if behind is not None:
                # What it was to go on from was not computed, whatever the device made of it.
                self._flight = None
                self._scheduler.retract(behind.plan)
            if isinstance(error, OutOfDeviceMemory):
                self._scheduler.retract(flight.plan)
                overlapped = flight.overlapped or behind is not None
                return self._shrink(flight.plan, error, overlapped=overlapped)
            return self._fail(flight.plan, error)
        self._failed_steps.clear()
        self._stats.steps += 1
        self._scheduler.size.good_step()
        advanced = self._scheduler.complete(flight.plan, result.tokens, failed=result.failures)
        if result.failures or result.logprobs or result.prompt_logprobs or result.vectors:
            return [_event(sequence, result) for sequence in advanced]
        return [_token(sequence) for sequence in advanced]

    def _fail(self, plan: StepPlan, error: Exception) -> list[TokenEvent]:
        """The device failed: end the step's requests, keep the others. Re-raise when it keeps failing."""
        self._stats.failed_steps += 1
        message = self._failed_steps.add(error)
        return self._end((grant.sequence for grant in plan.grants), message)

    def _shrink(self, plan: StepPlan, error: OutOfDeviceMemory, *, overlapped: bool) -> list[TokenEvent]:
        """The device had no memory for a step, which was taken back: go on with smaller ones."""
        self._stats.oom_steps += 1
        alone = self._scheduler.shrink(plan, overlapped=overlapped)
        log_shortage(error, plan.num_tokens, len(plan.grants))
        return [] if alone is None else self._end([alone], TOO_LARGE)

    def _end(self, sequences: Iterable[Sequence], message: str) -> list[TokenEvent]:
        """End those that have not ended yet with an error."""
        events = []
        for sequence in sequences:
            if sequence.finish_reason is None:
                self._scheduler.cancel(sequence.request.id, sequence.index)
                name, index = sequence.request.id, sequence.index
                events.append(TokenEvent(request_id=name, index=index, finish_reason="error", error=message))
        return events


def _token(sequence: Sequence) -> TokenEvent:
    """Of a step in which nobody asked for more than tokens, and nobody failed."""
    return TokenEvent(
        request_id=sequence.request.id,
        index=sequence.index,
        token_ids=sequence.tokens[-1:] if sequence.generates else [],
        finish_reason=sequence.finish_reason,
        stop_token=sequence.stop_token,
        cached_tokens=sequence.cached,
        scheduled=sequence.scheduled,
        preemptions=sequence.preemptions,
    )


def _event(sequence: Sequence, result: StepResult) -> TokenEvent:
    event = _token(sequence)
    if sequence.finish_reason == "error":
        failure = result.failures[sequence]
        event.token_ids, event.error, event.invalid = [], failure.sentence, failure.invalid
        return event
    event.prompt_logprobs = result.prompt_logprobs.get(sequence, [])
    event.embedding = result.vectors.get(sequence, b"")
    if sequence in result.logprobs:
        event.logprobs = [result.logprobs[sequence]]
    return event
