"""A loop over a scripted device, and everything it says until it is done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from penstock.engine.loop import Loop
from penstock.engine.memory.manager import KVMemory
from penstock.engine.request import Request, SamplingParams
from penstock.engine.schedule.plan import StepPlan
from penstock.engine.schedule.scheduler import Limits, Scheduler
from tests.engine.schedule.scripted import ScriptedDevice

Fault = Callable[[StepPlan], tuple[str, Exception] | None]


def no_fault(plan: StepPlan) -> None:
    return None


class Engine:
    """Checks the invariants after every step, and that every choice ends once."""

    def __init__(
        self,
        *,
        overlaps: bool,
        fault: Fault = no_fault,
        blocks: int = 200,
        block_size: int = 4,
        max_running: int = 4,
        max_step_tokens: int = 16,
        prefix_caching: bool = True,
    ) -> None:
        memory = KVMemory(blocks, block_size, prefix_caching=prefix_caching)
        limits = Limits(max_running, 1000, max_step_tokens, blocks * block_size)
        self.scheduler = Scheduler(limits, memory)
        self.device = ScriptedDevice(blocks, block_size, overlaps=overlaps, fault=fault)
        self.now = 0.0
        self.loop = Loop(self.scheduler, self.device, lambda: self.now)
        self.texts: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self.ends: dict[tuple[str, int], str] = {}
        self.errors: dict[str, str | None] = {}

    def submit(
        self,
        name: str,
        prompt: Sequence[int],
        *,
        eos: tuple[int, ...] = (),
        guided: tuple[tuple[int, ...], ...] = (),
        bad_words: tuple[tuple[int, ...], ...] = (),
        priority: int = 0,
        **params: object,
    ) -> None:
        request = Request(
            id=name,
            prompt=list(prompt),
            params=SamplingParams(**params),
            eos_token_ids=eos,
            guided=guided,
            bad_words=bad_words,
            priority=priority,
        )
        self.scheduler.submit(request, self.now)

    def cancel(self, name: str) -> None:
        for sequence in self.scheduler.cancel(name):
            self._end((name, sequence.index), "cancelled")

    def step(self) -> None:
        for event in self.loop.step():
            key = (event.request_id, event.index)
            assert key not in self.ends, f"{key} goes on after its end"
            self.texts[key] += event.token_ids
            if event.finish_reason is not None:
                self._end(key, event.finish_reason)
                self.errors[event.request_id] = event.error
        self.scheduler.check()
        assert self.device.in_flight <= 1
        self.now += 0.01

    def run(self, steps: int = 20_000) -> None:
        for _ in range(steps):
            if not self.loop.has_work:
                break
            self.step()
        assert not self.loop.has_work, "the work was never done"
        assert self.device.in_flight == 0, "a step was never collected"
        memory = self.scheduler.memory
        assert memory.available == memory.num_blocks, "blocks were lost"

    def _end(self, key: tuple[str, int], reason: str) -> None:
        assert key not in self.ends, f"{key} ended twice"
        self.ends[key] = reason
