"""What one step computes: the plan, and the plan in the making."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.schedule.sequence import Sequence


@dataclass(slots=True)
class Grant:
    """Compute `count` tokens of `sequence` from position `start` on.

    What is said here holds for the step that was planned, whatever becomes of the sequence meanwhile.
    """

    sequence: Sequence
    start: int
    count: int
    completes: bool  # all tokens that the sequence has by then are computed after this step
    samples: bool  # and the last of them is followed by a new one, at position start + count


@dataclass(slots=True)
class StepPlan:
    """What the device does in one step, in this order: `copies`, `admitted`, `grants`."""

    grants: list[Grant] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)  # newly placed in a slot
    copies: list[tuple[int, int]] = field(default_factory=list)  # blocks, from and to, in order
    num_tokens: int = 0
    # Somebody's next token cannot be drawn before the host knows the one that this step gives.
    needs_known_tokens: bool = False
    wake_at: float | None = None  # when to ask again, if the plan is empty because of the window


class StepInMaking:
    """Grants can still be withdrawn when their sequence is preempted."""

    def __init__(self, budget: int) -> None:
        self.budget = budget  # tokens left
        self.grants: list[Grant] = []
        self.admitted: list[Sequence] = []
        self.copies: list[tuple[int, int]] = []
        self.preempted = False

    def grant(self, sequence: Sequence, count: int, copy: tuple[int, int] | None = None) -> None:
        self.budget -= count
        start = sequence.computed
        completes = start + count == len(sequence.tokens) + sequence.pending
        self.grants.append(Grant(sequence, start, count, completes, completes and sequence.generates))
        if copy is not None:
            self.copies.append(copy)

    def withdraw(self, sequence: Sequence) -> None:
        self.preempted = True
        for at, grant in enumerate(self.grants):
            if grant.sequence is sequence:
                self.budget += grant.count
                del self.grants[at]
                break
        if sequence in self.admitted:
            self.admitted.remove(sequence)

    def plan(self) -> StepPlan:
        """What was decided. From here on its tokens count as computed, and those it samples as there."""
        plan = StepPlan(self.grants, self.admitted, self.copies)
        num_tokens = 0
        for grant in self.grants:
            sequence = grant.sequence
            sequence.computed += grant.count
            num_tokens += grant.count
            if grant.samples:
                sequence.pending += 1
                if sequence.needs_known_tokens:
                    plan.needs_known_tokens = True
        plan.num_tokens = num_tokens
        return plan
