"""Continuous and static batching are driven as they are defined, on an engine one can count by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.bench.offline import Time, run_continuous, run_static, warm_up
from penstock.bench.progress import Progress
from penstock.bench.workloads import Job, Workload
from penstock.engine.request import EngineStats, Request, TokenEvent
from penstock.errors import InvalidRequestError


class CountingEngine:
    """Every step takes one second and gives each request one token; any number run together."""

    def __init__(self) -> None:
        self.now = 0.0
        self.left: dict[str, int] = {}
        self.submitted: list[tuple[float, int]] = []  # when, and for how many tokens
        self.most_together = 0
        self.counted = EngineStats()

    @property
    def clock(self) -> Time:
        return Time(now=lambda: self.now, sleep=self.wait)

    def wait(self, seconds: float) -> None:
        self.now += seconds

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
    run = run_continuous(engine, workload(), jobs(2), clock=engine.clock)
    assert (run.errors, run.first_error, run.output_tokens) == (1, "The device is on fire.", 0)


class ChoosyEngine(CountingEngine):
    """Takes no prompt of token 1000."""

    def submit(self, request: Request) -> None:
        if request.prompt == [1000]:
            raise InvalidRequestError("Token 1000 is not in the vocabulary.")
        super().submit(request)


@pytest.mark.parametrize("static", [False, True])
def test_a_request_that_is_refused_is_one_error_and_the_others_are_measured(static: bool) -> None:
    engine, seen = ChoosyEngine(), Progress()
    work = [Job([1000], 2), *jobs(2, 3, 1)[1:]]
    if static:
        run = run_static(engine, workload(), work, batch_size=2, clock=engine.clock, progress=seen)
    else:
        run = run_continuous(engine, workload(clients=1), work, clock=engine.clock, progress=seen)
    assert (run.requests, run.completed, run.errors, run.unfinished) == (3, 2, 1, 0)
    assert run.first_error == "Token 1000 is not in the vocabulary."
    assert seen == Progress(tokens=4, done=2, failed=1, in_flight=0)


def test_a_run_ends_though_every_request_is_refused() -> None:
    engine = ChoosyEngine()
    run = run_continuous(engine, workload(), [Job([1000], 2)] * 2, clock=engine.clock)
    assert (run.requests, run.errors) == (2, 2)


def test_progress_counts_wanted_tokens_and_requests() -> None:
    engine = CountingEngine()
    seen = Progress()
    run_static(engine, workload(), jobs(2, 8), batch_size=2, clock=engine.clock, progress=seen)
    assert seen == Progress(tokens=10, done=2, failed=0, in_flight=0)


def test_requests_of_an_open_loop_come_at_their_moments_whatever_still_runs() -> None:
    engine = CountingEngine()
    open_loop = Workload(name="W", requests=3, input_len=(1, 1), output_len=(1, 9), rate=1.0)
    timed = [Job([1000], 4, at=0.0), Job([1001], 2, at=1.5), Job([1002], 1, at=20.0)]
    run = run_continuous(engine, open_loop, timed, clock=engine.clock)
    # The second is due in the middle of a step, and waits for its end; the wait counts.
    assert [when for when, _ in engine.submitted] == pytest.approx([0.0, 2.0, 20.0])
    assert [sample.sent for sample in run.samples] == [0.0, 1.5, 20.0]
    assert [sample.ttft for sample in run.samples] == pytest.approx([1.0, 1.5, 1.0])
    assert run.warnings == []  # it was the engine that it waited for
    assert (run.arrivals, run.rate) == ("poisson", 1.0)


@pytest.mark.parametrize("static", [False, True])
def test_a_run_that_is_stopped_reports_what_ended_before(static: bool) -> None:
    engine = CountingEngine()
    work = jobs(2, 8, 3, 3)

    def stop() -> bool:
        return engine.now >= 2.0

    if static:
        run = run_static(engine, workload(), work, batch_size=2, clock=engine.clock, stop=stop)
        assert (run.requests, run.completed, run.unfinished) == (2, 0, 2)
    else:
        run = run_continuous(engine, workload(), work, clock=engine.clock, stop=stop)
        assert (run.requests, run.completed, run.unfinished) == (4, 1, 3)
        assert run.output_tokens == 2
    assert run.wall_seconds == 2.0
