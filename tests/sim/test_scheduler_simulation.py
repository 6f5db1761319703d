"""Seeded simulations of the real scheduler and memory, with their invariants checked at every step.

A failure prints its seed; the same seed replays it. The steps are shared out over many small
worlds, because small pools and short queues reach odd corners soonest.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from penstock.engine.memory.manager import KVMemory
from penstock.engine.request import Request, SamplingParams
from penstock.engine.schedule.scheduler import Limits, Scheduler, StepPlan
from penstock.errors import QueueFullError

WORLDS = 100
STEPS_PER_WORLD = 2_100  # over 200,000 in all
STEP_SECONDS = 0.05
EOS = 7


class World:
    """One scheduler, a made-up model that answers at random, and clients that come, go and hang up."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.overlap = seed % 2 == 1  # a step is planned while the one before it is still being computed
        self.flight: StepPlan | None = None
        block_size = self.rng.choice([1, 2, 4, 16])
        self.max_len = self.rng.randint(8, 24 * block_size)
        blocks = -(-self.max_len // block_size)
        memory = KVMemory(
            self.rng.randint(blocks, 6 * blocks), block_size, prefix_caching=self.rng.random() < 0.8
        )
        max_running = self.rng.randint(1, 12)
        self.limits = Limits(
            max_running=max_running,
            max_waiting=self.rng.randint(4, 40),
            max_step_tokens=self.rng.randint(max_running, max_running + 40),
            max_model_len=self.max_len,
            arrival_window=self.rng.choice([0.0, 0.0, 0.02]),
            ageing_seconds=self.rng.choice([0.5, 5.0]),
        )
        self.scheduler = Scheduler(self.limits, memory)
        self.load = self.rng.uniform(0.05, 1.2)
        self.now = 0.0
        self.serial = 0
        self.open: dict[str, set[int]] = {}
        self.read_to: dict[int, int] = {}  # of sequences that read their prompt: how far they have come
        self.ended: Counter[tuple[str, int]] = Counter()
        self.expected_ends = 0
        self.stalled = 0  # steps since the first in rank last advanced
        # A few stems make shared prefixes likely.
        self.stems = [[self.rng.randint(0, 9) for _ in range(self.max_len)] for _ in range(3)]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.arrivals()
            self.hang_ups()
            self.step()
        self.load = 0.0
        for _ in range(200_000):
            if not self.scheduler.has_work and self.flight is None:
                break
            self.step()
        assert not self.scheduler.has_work, "the backlog never drained"
        assert not self.open
        assert sum(self.ended.values()) == self.expected_ends
        assert set(self.ended.values()) <= {1}, "a sequence ended twice"
        memory = self.scheduler.memory
        assert memory.available == memory.num_blocks

    def arrivals(self) -> None:
        while self.rng.random() < self.load / 2:
            stem = self.rng.choice(self.stems)
            prompt = stem[: self.rng.randint(1, self.max_len - 1)]
            if self.rng.random() < 0.5:
                prompt[-1] = self.rng.randint(0, 9)
            self.serial += 1
            pooling = self.rng.choice([None] * 8 + ["last", "mean"])
            request = Request(
                id=str(self.serial),
                prompt=prompt,
                params=SamplingParams(
                    n=1 if pooling else self.rng.choice([1, 1, 1, 2, 4]),
                    max_tokens=self.rng.choice([None, 0, 1, 5, 30]),
                    prompt_logprobs=self.rng.choice([None, None, None, 0]),
                    ignore_eos=self.rng.random() < 0.3,
                ),
                eos_token_ids=(EOS,),
                priority=self.rng.choice([-1, 0, 0, 1]),
                salt=self.rng.choice(["", "", "tenant"]),
                pooling=pooling,
            )
            try:
                self.scheduler.submit(request, self.now)
            except QueueFullError:
                places = self.limits.max_waiting + self.limits.max_running
                taken = len(self.scheduler.waiting) + len(self.scheduler.running)
                assert taken + request.params.n > places, "refused although there was room"
                continue
            self.open[request.id] = set(range(request.params.n))
            self.expected_ends += request.params.n

    def hang_ups(self) -> None:
        if self.open and self.rng.random() < 0.03:
            request_id = self.rng.choice(list(self.open))
            index = self.rng.choice([None, *self.open[request_id]])
            for sequence in self.scheduler.cancel(request_id, index):
                self.end(request_id, sequence.index)

    def step(self) -> None:
        scheduler = self.scheduler
        first = scheduler.running[0] if scheduler.running else None
        plan = scheduler.schedule(self.now)
        if first is not None and not first.running:
            assert scheduler.running[0].rank < first.rank, "the first in rank was preempted for one behind it"
        scheduler.check()
        assert plan.num_tokens <= self.limits.max_step_tokens
        assert len({id(grant.sequence) for grant in plan.grants}) == len(plan.grants)
        for grant in plan.grants:
            table = grant.sequence.table
            if grant.sequence.reads_prompt and grant.start < grant.sequence.prompt_len:
                # What is wanted of every prompt token is there only if each was computed, in order.
                reached = self.read_to.pop(id(grant.sequence), 0) if grant.start else 0
                assert grant.start == reached, "a part of the prompt was not computed"
                self.read_to[id(grant.sequence)] = grant.start + grant.count
            assert grant.count > 0
            assert grant.sequence.running
            assert len(table.blocks) * scheduler.memory.block_size >= grant.start + grant.count
        if not plan.grants:
            idle = plan.wake_at is not None or not scheduler.has_work or self.flight is not None
            assert idle, "work is waiting and nothing was granted"
        self.check_progress(plan)
        computed: StepPlan | None = plan
        if self.overlap:
            computed, self.flight = self.flight, plan if plan.grants else None
        if computed is not None:
            self.complete(computed)
        scheduler.check()
        self.now += STEP_SECONDS

    def complete(self, plan: StepPlan) -> None:
        samples = sum(grant.samples for grant in plan.grants)
        for sequence in self.scheduler.complete(plan, [self.rng.randint(0, 9) for _ in range(samples)]):
            assert len(sequence.tokens) <= sequence.limit
            if sequence.finish_reason is not None:
                self.end(sequence.request.id, sequence.index)

    def check_progress(self, plan: StepPlan) -> None:
        """Nobody starves: the first of the running advances in every step, and the first of all is kept
        from a slot only by sequences that advance to their own ends meanwhile."""
        granted = {id(grant.sequence) for grant in plan.grants}
        if plan.grants:
            first = self.scheduler.running[0]
            last_is_coming = len(first.tokens) + first.pending == first.limit and not first.remaining > 1
            assert id(first) in granted or (self.overlap and last_is_coming), "the first stood still"
        waiting = self.scheduler.waiting
        first_waits = bool(waiting) and (
            not self.scheduler.running or waiting[0].rank < self.scheduler.running[0].rank
        )
        self.stalled = self.stalled + 1 if first_waits and plan.grants else 0
        assert self.stalled <= self.max_len, "the first in rank waits longer than anybody runs"

    def end(self, request_id: str, index: int) -> None:
        self.ended[request_id, index] += 1
        self.open[request_id].discard(index)
        if not self.open[request_id]:
            del self.open[request_id]


@pytest.mark.parametrize("first", range(0, WORLDS, 10))
def test_two_hundred_thousand_steps_keep_every_invariant(first: int) -> None:
    for seed in range(first, first + 10):
        world = World(seed)
        try:
            world.run(STEPS_PER_WORLD)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
