"""Continuous and static batching are driven as they are defined, on an engine one can count by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.bench.offline import run_continuous, run_static, warm_up
from penstock.bench.workloads import Job, Workload
from penstock.engine.request import EngineStats, Request, TokenEvent


class CountingEngine:
    """Every step takes one second and gives each request one token; any number run together."""

    def __init__(self) -> None:
        self.now = 0.0
        self.left: dict[str, int] = {}
        self.submitted: list[tuple[float, int]] = []  # when, and for how many tokens
        self.most_together = 0
        self.counted = EngineStats()

    def clock(self) -> float:
        return self.now

    def submit(self, request: Request) -> None:
        assert request.params.max_tokens is not None
        assert request.params.ignore_eos
        self.left[request.id] = request.params.max_tokens
        self.submitted.append((self.now, request.params.max_tokens))

    def step(self) -> Sequence[TokenEvent]:
        self.now += 1.0
        self.most_together = max(self.most_together, len(self.left))
        self.counted.steps += 1
        self.counted.generated_tokens += len(self.left)
        self.counted.kv_allocated_tokens += 100
        self.counted.kv_used_tokens += 97
        events = []
        for name in list(self.left):
            self.left[name] -= 1
            ended = self.left[name] == 0
            events.append(
                TokenEvent(request_id=name, token_ids=[7], finish_reason="length" if ended else None)
            )
            if ended:
                del self.left[name]
        return events

    @property
    def has_work(self) -> bool:
        return bool(self.left)

    def stats(self) -> EngineStats:
        return EngineStats(**{name: getattr(self.counted, name) for name in EngineStats.__slots__})


def jobs(*lengths: int) -> list[Job]:
    return [Job([1000 + number], length) for number, length in enumerate(lengths)]


def workload(clients: int | None = None) -> Workload:
    return Workload(name="W", requests=4, input_len=(1, 1), output_len=(1, 9), clients=clients)


def test_continuous_batching_lets_each_request_leave_when_it_is_done() -> None:
    engine = CountingEngine()
    run = run_continuous(engine, workload(), jobs(2, 8, 1, 4), clock=engine.clock)
    assert engine.submitted == [(0.0, 2), (0.0, 8), (0.0, 1), (0.0, 4)]
    assert run.wall_seconds == 8.0
    assert run.output_tokens == 15
    assert run.e2e.mean == pytest.approx((2 + 8 + 1 + 4) / 4)
    assert (run.errors, run.short) == (0, 0)


def test_clients_send_their_next_request_after_their_last_answer() -> None:
    engine = CountingEngine()
    run = run_continuous(engine, workload(clients=2), jobs(2, 5, 1, 1), clock=engine.clock)
    assert engine.most_together == 2
    assert [when for when, _ in engine.submitted] == [0.0, 0.0, 2.0, 3.0]
    assert run.wall_seconds == 5.0
    assert run.ttft.p99 == pytest.approx(1.0)  # counted from when it was sent


def test_static_batching_computes_every_request_to_the_longest_of_its_group() -> None:
    engine = CountingEngine()
    run = run_static(engine, workload(), jobs(2, 8, 1, 4), batch_size=2, clock=engine.clock)
    assert engine.submitted == [(0.0, 8), (0.0, 8), (8.0, 4), (8.0, 4)]
    assert run.wall_seconds == 12.0


def test_static_batching_counts_only_the_tokens_that_were_wanted() -> None:
    engine = CountingEngine()
    run = run_static(engine, workload(), jobs(2, 8, 1, 4), batch_size=2, clock=engine.clock)
    assert run.output_tokens == 15
    assert run.short == 0


def test_static_batching_gives_an_answer_when_its_whole_group_is_done_and_counts_the_wait() -> None:
    engine = CountingEngine()
    run = run_static(engine, workload(), jobs(2, 8, 1, 4), batch_size=2, clock=engine.clock)
    assert run.e2e.mean == pytest.approx((8 + 8 + 12 + 12) / 4)


def test_a_last_group_may_be_smaller() -> None:
    engine = CountingEngine()
    run = run_static(engine, workload(), jobs(3, 3, 2), batch_size=2, clock=engine.clock)
    assert (run.wall_seconds, run.output_tokens) == (5.0, 8)


def test_the_engines_own_account_covers_the_run_alone() -> None:
    engine = CountingEngine()
    warm_up(engine)
    run = run_continuous(engine, workload(), jobs(2, 4), clock=engine.clock)
    assert run.engine is not None
    assert run.engine["steps"] == 4
    assert run.engine["kv_waste"] == pytest.approx(0.03)


def test_a_request_that_fails_is_an_error_with_its_sentence() -> None:
    class FailingEngine(CountingEngine):
        def step(self) -> Sequence[TokenEvent]:
            name = next(iter(self.left))
            del self.left[name]
            return [TokenEvent(request_id=name, finish_reason="error", error="The device is on fire.")]

    engine = FailingEngine()
    engine.now = 1.0
    ticking = iter(range(100))
    run = run_continuous(engine, workload(), jobs(2), clock=lambda: float(next(ticking)))
    assert (run.errors, run.first_error, run.output_tokens) == (1, "The device is on fire.", 0)


def test_progress_is_told_of_every_wanted_token() -> None:
    engine = CountingEngine()
    told: list[int] = []
    run_static(engine, workload(), jobs(2, 8), batch_size=2, clock=engine.clock, progress=told.append)
    assert sum(told) == 10
