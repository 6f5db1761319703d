"""A scheduler with a pretended device and model, driven step by step.

The model's next token is a function of everything before it, read back through the block table. So a
wrong block, a lost copy or a stale table shows in the tokens, and `reference` says what they must be.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict

from penstock.engine.memory.manager import KVMemory
from penstock.engine.request import Request, SamplingParams
from penstock.engine.schedule.scheduler import Limits, Scheduler, StepPlan
from penstock.engine.schedule.sequence import Sequence
from tests.engine.schedule.scripted import VOCAB, Launched, ScriptedDevice, next_token

STEP_SECONDS = 0.01


def reference(request: Request, index: int = 0, *, max_model_len: int = 10**9) -> list[int]:
    """The output of one choice, computed with no scheduler at all."""
    params, output = request.params, list[int]()
    while True:
        token = next_token([*request.prompt, *output], index)
        output.append(token)
        ends = token in params.stop_token_ids or (not params.ignore_eos and token in request.eos_token_ids)
        if ends and len(output) >= params.min_tokens:
            return output
        if len(output) == params.max_tokens or len(request.prompt) + len(output) >= max_model_len:
            return output


class Machine:
    """`submit`, `step`, `run`; checks every invariant it can at every step."""

    def __init__(
        self,
        *,
        blocks: int = 64,
        block_size: int = 4,
        prefix_caching: bool = True,
        max_running: int = 4,
        max_waiting: int = 100,
        max_step_tokens: int = 16,
        max_model_len: int = 200,
        arrival_window: float = 0.0,
        ageing_seconds: float = 10.0,
        overlap: bool = False,
    ) -> None:
        max_model_len = min(max_model_len, blocks * block_size)
        self.limits = Limits(
            max_running, max_waiting, max_step_tokens, max_model_len, arrival_window, ageing_seconds
        )
        self.memory = KVMemory(blocks, block_size, prefix_caching=prefix_caching)
        self.scheduler = Scheduler(self.limits, self.memory)
        # Overlapping, a step is planned while the one before it is still being computed.
        self.device = ScriptedDevice(blocks, block_size, overlaps=overlap)
        self.flight: Launched | None = None
        self.now = 100.0
        self.requests: dict[str, Request] = {}
        self.outputs: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self.ends: dict[tuple[str, int], str] = {}
        self.preempted: list[str] = []  # request ids, in the order in which they were put back
        self.computed: Counter[str] = Counter()  # tokens computed for each request
        self.plans: list[StepPlan] = []

    def submit(
        self,
        name: str,
        prompt: int | list[int],
        *,
        priority: int = 0,
        salt: str = "",
        eos: tuple[int, ...] = (),
        **params: object,
    ) -> Request:
        """A prompt given as a number is that many tokens, different for every name."""
        if isinstance(prompt, int):
            prompt = [zlib.crc32(f"{name} {at}".encode()) % VOCAB for at in range(prompt)]
        request = Request(
            id=name,
            prompt=prompt,
            params=SamplingParams(**params),
            eos_token_ids=eos,
            priority=priority,
            salt=salt,
        )
        self.scheduler.submit(request, self.now)
        self.requests[name] = request
        return request

    def cancel(self, name: str, index: int | None = None) -> None:
        for sequence in self.scheduler.cancel(name, index):
            self._end(sequence, "cancelled")
        self.scheduler.check()

    def step(self) -> StepPlan:
        """One step of the engine, as `loop.py` and `run/runner.py` do it."""
        running = {s.request.id for s in self.scheduler.running}
        plan = self.scheduler.schedule(self.now)
        self.preempted += sorted(running - {s.request.id for s in self.scheduler.running})
        self.plans.append(plan)
        self.scheduler.check()
        self._check_plan(plan)
        launched = self.device.launch(plan)
        for name, count in self.granted(plan).items():
            self.computed[name] += count
        if not self.device.overlaps:
            self._collect(launched)
        else:
            flight, self.flight = self.flight, launched if plan.grants else None
            if flight is not None:
                self._collect(flight)
        self.scheduler.check()
        for sequence in self.scheduler.running:
            assert sequence.pending == 0 or self.flight is not None
            self.device.check(sequence)
        self.now += STEP_SECONDS
        return plan

    def _collect(self, launched: Launched) -> None:
        tokens = self.device.collect(launched).tokens
        for sequence in self.scheduler.complete(launched.plan, tokens):
            self.outputs[sequence.request.id, sequence.index].append(sequence.tokens[-1])
            if sequence.finish_reason is not None:
                self._end(sequence, sequence.finish_reason)

    @property
    def has_work(self) -> bool:
        return self.flight is not None or self.scheduler.has_work

    def run(self, steps: int = 10_000) -> None:
        """Until nothing is left to do; every output must be the reference's."""
        for _ in range(steps):
            if not self.has_work:
                break
            self.step()
        assert not self.has_work, "the work was never done"
        assert self.memory.available == self.memory.num_blocks, "blocks were lost"
        self.check_outputs()

    def check_outputs(self) -> None:
        for name, request in self.requests.items():
            for index in range(request.params.n):
                expected = reference(request, index, max_model_len=self.limits.max_model_len)
                found = self.outputs[name, index]
                if self.ends.get((name, index)) == "cancelled":
                    expected = expected[: len(found)]
                assert found == expected, f"choice {index} of {name}"
                assert (name, index) in self.ends

    def granted(self, plan: StepPlan) -> dict[str, int]:
        """Tokens that each request got in a step."""
        counts: Counter[str] = Counter()
        for grant in plan.grants:
            counts[grant.sequence.request.id] += grant.count
        return dict(counts)

    @property
    def running(self) -> list[str]:
        return [s.request.id for s in self.scheduler.running]

    @property
    def waiting(self) -> list[str]:
        return [s.request.id for s in self.scheduler.waiting]

    def sequence(self, name: str, index: int = 0) -> Sequence:
        everyone = [*self.scheduler.running, *self.scheduler.waiting]
        return next(s for s in everyone if s.request.id == name and s.index == index)

    def _end(self, sequence: Sequence, reason: str) -> None:
        key = (sequence.request.id, sequence.index)
        assert key not in self.ends, f"{key} ended twice"
        self.ends[key] = reason

    def _check_plan(self, plan: StepPlan) -> None:
        assert plan.num_tokens <= self.limits.max_step_tokens, "the budget was passed"
        assert len({id(grant.sequence) for grant in plan.grants}) == len(plan.grants)
        granted = {id(grant.sequence) for grant in plan.grants}
        assert all(id(sequence) in granted for sequence in plan.admitted), "admitted for nothing"
        for grant in plan.grants:
            sequence = grant.sequence
            assert grant.count > 0
            assert sequence.running
            assert sequence.computed == grant.start + grant.count
            assert sequence.computed + grant.samples <= sequence.limit, "it gets more than it may have"
        if self.scheduler.has_work and plan.wake_at is None and self.flight is None:
            assert plan.grants, "there is work and nothing was granted"
