"""A pretended device that computes steps in order, is asked for their results later, and may lack memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass

from penstock.engine.run.runner import StepResult
from penstock.engine.schedule.plan import Grant, StepPlan
from penstock.engine.schedule.sequence import Sequence
from tests.engine.memory.device import Device

VOCAB = 50


def next_token(tokens: Many[int], index: int) -> int:
    """What the model of these tests says after `tokens`; choices differ as if by their seeds."""
    return zlib.crc32(repr((index, list(tokens))).encode()) % VOCAB


@dataclass(frozen=True, slots=True)
class Launched:
    plan: StepPlan
    tokens: list[int]
    error: Exception | None  # raised when the results are asked for


class ScriptedDevice:
    """The next token is a function of all before it, read back through the block table.

    `fault` sees each plan and says what is to go wrong: an exception, and when.
    """

    def __init__(
        self,
        blocks: int,
        block_size: int,
        *,
        overlaps: bool,
        fault: Callable[[StepPlan], tuple[str, Exception] | None] = lambda plan: None,
    ) -> None:
        self.overlaps = overlaps
        self.fault = fault
        self.in_flight = 0
        self.most_in_flight = 0
        self.plans: list[StepPlan] = []
        self._cache = Device(blocks, block_size)
        self._tokens: dict[int, list[int]] = {}  # by slot, as the device itself wrote them
        self._read: dict[int, list[int]] = {}  # by slot, prompt positions whose logits somebody asked for

    def launch(self, plan: StepPlan) -> Launched:
        self.plans.append(plan)
        when, error = self.fault(plan) or ("never", None)
        if error is not None and when == "at once":
            raise error
        self._prepare(plan)
        if error is not None and when == "prepared":
            raise error
        tokens = self._compute(plan)
        if error is not None and when == "computed":
            raise error
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return Launched(plan, tokens, error)

    def collect(self, launched: Launched) -> StepResult:
        self.in_flight -= 1
        if launched.error is not None:
            self.in_flight = 0  # a step behind it is given up as well
            raise launched.error
        return StepResult(tokens=launched.tokens)

    def _prepare(self, plan: StepPlan) -> None:
        self._cache.copy(plan.copies)
        for sequence in plan.admitted:
            self._cache.forget(sequence.slot)
            self._tokens[sequence.slot] = list(sequence.tokens)
        for grant in plan.grants:
            self._cache.update(grant.sequence.slot, grant.sequence.table)

    def _compute(self, plan: StepPlan) -> list[int]:
        # A layer writes the keys and values of every row before any row looks at them.
        for grant in plan.grants:
            slot = grant.sequence.slot
            self._cache.write(slot, self._tokens[slot], grant.start, grant.start + grant.count)
        for grant in plan.grants:
            tokens = self._tokens[grant.sequence.slot]
            self._cache.read(grant.sequence.table, tokens, grant.start + grant.count)
            if grant.sequence.reads_prompt:
                self._read_prompt(grant)
        return [self._sample(grant) for grant in plan.grants if grant.samples]

    def _read_prompt(self, grant: Grant) -> None:
        slot = grant.sequence.slot
        positions = self._read.pop(slot) if grant.start else []
        positions += range(grant.start, grant.start + grant.count)
        if grant.completes:
            assert positions == list(range(grant.sequence.prompt_len)), "the prompt was not read in order"
        else:
            self._read[slot] = positions

    def _sample(self, grant: Grant) -> int:
        sequence, end = grant.sequence, grant.start + grant.count
        tokens = self._tokens[sequence.slot]
        token = next_token(tokens[:end], sequence.index)
        if sequence.needs_known_tokens:
            assert len(sequence.tokens) == end, "the host does not know the token that it needs"
        if sequence.guide is not None:
            allowed = sequence.guide.allowed(sequence.output)
            token = allowed[token % len(allowed)]
        tokens[end:] = [token]
        return token

    def check(self, sequence: Sequence) -> None:
        """Assert that a running sequence has on the device what the host believes."""
        tokens = self._tokens[sequence.slot]
        assert tokens[: len(sequence.tokens)] == sequence.tokens, "the host has other tokens than the device"
        self._cache.read(sequence.table, tokens, sequence.computed)
