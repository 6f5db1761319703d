"""The step scheduler: urgent prompts alone; else decodes first, then prompt chunks, under one budget."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from itertools import pairwise

from penstock.engine.memory.manager import LAST_RANK, KVMemory
from penstock.engine.request import Request
from penstock.engine.schedule.plan import Grant as Grant
from penstock.engine.schedule.plan import StepInMaking
from penstock.engine.schedule.plan import StepPlan as StepPlan
from penstock.engine.schedule.sequence import LogitsProcessor, Sequence
from penstock.engine.schedule.size import StepSize
from penstock.errors import ContextLengthError, InvalidRequestError, QueueFullError

ALONE_STEPS = 4  # that an urgent prompt may have to itself


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a step and the queue. Units: requests, tokens, seconds."""

    max_running: int
    max_waiting: int
    max_step_tokens: int
    max_model_len: int
    arrival_window: float = 0.0
    ageing_seconds: float = 10.0


class Scheduler:
    """Holds every live sequence, either waiting or running, both in order of rank.

    The sequence of smallest rank is never preempted, and memory holds at least one sequence of
    full length: so the first in order always advances, and everyone becomes the first.

    One plan may be made while an earlier one is still being computed. The device executes steps in the
    order of their plans, each after all writes of the one before, so blocks and slots that a sequence
    gives up are handed out again at once, even if the step under way still uses them.
    """

    def __init__(self, limits: Limits, memory: KVMemory) -> None:
        self.limits = limits
        self.size = StepSize(limits.max_step_tokens, limits.max_running)
        self.memory = memory
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.preemptions = 0
        self.prompt_tokens = 0  # each prompt once, with its first token, however often it was computed
        self.generated_tokens = 0
        self.prefix_queries = 0  # tokens
        self.prefix_hits = 0  # tokens
        self._live: dict[str, list[Sequence]] = {}
        self._priorities: dict[int, int] = {}  # of all live sequences, and how many have each
        self._free_slots = list(range(limits.max_running - 1, -1, -1))
        self._serial = 0
        # Blocks kept for the growth of running sequences when another is admitted.
        self._headroom = max(1, memory.num_blocks // 100)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._live

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def submit(self, request: Request, now: float, processors: tuple[LogitsProcessor, ...] = ()) -> None:
        """Queue a request, or say why not."""
        prompt_len, choices = len(request.prompt), request.params.n if request.pooling is None else 1
        most_output = request.params.max_tokens if request.pooling is None else 0
        limit = self.limits.max_model_len
        if prompt_len > limit or (prompt_len == limit and most_output != 0):
            more = "" if most_output == 0 else " and at least one token more"
            raise ContextLengthError(
                f"The prompt has {prompt_len} tokens, but the model's context of {limit} tokens must hold "
                f"the prompt{more}."
            )
        places = self.limits.max_waiting + self.limits.max_running
        if choices > places:
            raise InvalidRequestError(
                f"n is {choices}, but the engine holds at most {places} choices.", param="n"
            )
        # Those that can start at once do not count as waiting.
        if len(self.waiting) + choices > self.limits.max_waiting + len(self._free_slots):
            raise QueueFullError(
                f"The engine's queue is full: {len(self.waiting)} are waiting, {choices} more would pass "
                f"max_waiting ({self.limits.max_waiting})."
            )
        if most_output is not None:
            limit = min(limit, prompt_len + most_output)
        ranked = now + request.priority * self.limits.ageing_seconds
        sequences: list[Sequence] = []
        for index in range(choices):
            self._serial += 1
            sequence = Sequence(
                request,
                index,
                (ranked, self._serial),
                now,
                list(request.prompt),
                limit,
                self.memory.new_table(request.salt),
                sequences[0] if sequences else None,
                processors,
            )
            sequences.append(sequence)
            insort(self.waiting, sequence, key=_rank)
        self._live[request.id] = sequences
        self._priorities[request.priority] = self._priorities.get(request.priority, 0) + choices

    def cancel(self, request_id: str, index: int | None = None) -> list[Sequence]:
        """End a request, or one of its choices; returns the sequences that this ended."""
        ended = [s for s in self._live.get(request_id, ()) if index is None or s.index == index]
        for sequence in ended:
            self._end(sequence)
            sequence.finish_reason = "cancelled"
        return ended

    def schedule(self, now: float) -> StepPlan:
        """Decide the next step.

        `complete` is called with the results of every step, in order: before the next call, or after it
        where the device is given the next step while it computes this one. Never are two steps under
        way when a third is planned.
        """
        step = StepInMaking(self.size.tokens)
        wake_at = self._window_end(now)
        urgent = self._urgent(waiting=wake_at is None)
        if urgent is not None:
            # Its step is short: what is less urgent would only make it longer.
            self._fill(step, wake_at is None, [s for s in self.running if not urgent.goes_before(s)], urgent)
        if not step.grants:
            self._fill(step, wake_at is None, self.running)
        plan = step.plan()
        for sequence in plan.admitted:
            sequence.scheduled = sequence.scheduled or now
        if not plan.grants:
            plan.wake_at = wake_at
        return plan

    def _fill(
        self, step: StepInMaking, admits: bool, running: list[Sequence], urgent: Sequence | None = None
    ) -> None:
        """Decodes first, then prompt chunks in order of rank; of those that wait, only who goes not behind
        `urgent`."""
        decodes: list[Sequence] = []
        chunks: list[Sequence] = []
        for sequence in running:
            length = len(sequence.tokens) + sequence.pending
            remaining = length - sequence.computed
            if remaining > 1:
                chunks.append(sequence)
            elif remaining == 1 and (length < sequence.limit or not sequence.pending):
                # Otherwise the token that is under way is its last: only its value is not known.
                decodes.append(sequence)
        is_writable, grant = self.memory.is_writable, step.grant
        for sequence in decodes:
            if sequence.slot >= 0 and step.budget:
                if is_writable(sequence.table, sequence.computed):
                    grant(sequence, 1)
                else:
                    self._advance(sequence, step)
        for sequence in chunks:
            if admits:
                # A prompt under way gives way to arrivals that come before it in rank.
                self._admit(step, before=sequence.rank, urgent=urgent)
            if sequence.running and step.budget:
                self._advance(sequence, step)
        if admits:
            self._admit(step, before=LAST_RANK, urgent=urgent)

    def _urgent(self, *, waiting: bool) -> Sequence | None:
        """The first prompt in order, if a few steps complete it and others of lower priority are behind it.

        A longer one takes its turns beside running answers: no prompt holds them up for more than those.
        Whoever has aged to come before it in rank is not behind: so everybody still becomes the first.
        """
        if len(self._priorities) < 2:
            return None
        prompts = (s for s in self.running if s.remaining > 1)
        first = next(prompts, None)
        if waiting:
            arrived = next((s for s in self.waiting if not self._should_wait(s)), None)
            if arrived is not None and (first is None or arrived.rank < first.rank):
                first = arrived
        if first is None or first.remaining > ALONE_STEPS * self.size.tokens:
            return None
        return first if any(first.goes_before(s) for s in self.running) else None

    def complete(
        self, plan: StepPlan, sampled: list[int], failed: Container[Sequence] = ()
    ) -> list[Sequence]:
        """Take a step's results: one token for each grant that samples, in the plan's order.

        `failed` holds sequences that want no token and whose result is none either. Returns the
        sequences that are complete; those with a finish_reason have left. What comes for a sequence
        that ended while the step was under way is ignored.
        """
        advanced: list[Sequence] = []
        memory = self.memory
        block_size, caching = memory.block_size, memory.prefix_caching
        at = 0
        for grant in plan.grants:
            samples = grant.samples
            at += samples
            sequence = grant.sequence
            if sequence.finish_reason is not None:
                continue
            tokens = sequence.tokens
            # A preempted one has given its blocks up, and keeps its token: that is part of its text.
            if sequence.slot >= 0:
                # Known are the tokens that this step computed. A later one, planned meanwhile, has more.
                sequence.settled = end = grant.start + grant.count
                if caching and end // block_size > sequence.table.committed:
                    memory.commit(sequence.table, tokens, end)
            if not grant.completes:
                continue
            if len(tokens) == sequence.prompt_len and sequence.origin is None:
                self.prompt_tokens += sequence.prompt_len
            if samples:
                sequence.pending -= 1
                self.generated_tokens += 1
                over = sequence.append(sampled[at - 1])
            else:
                sequence.close(failed=sequence in failed)
                over = True
            advanced.append(sequence)
            if over:
                self._end(sequence)
        return advanced

    def retract(self, plan: StepPlan) -> None:
        """The step was not computed: as if it had not been planned, but for who was preempted for it.

        Of two steps under way the later one is taken back first.
        """
        for grant in plan.grants:
            sequence = grant.sequence
            if sequence.finish_reason is not None:
                continue
            sequence.pending -= grant.samples
            if not sequence.running:
                continue  # preempted since
            sequence.computed = grant.start
            # A part of what is wanted of the prompt may have been read already: it is read anew. Who has
            # copied a block has just been admitted.
            if sequence.reads_prompt or sequence in plan.admitted:
                self._put_back(sequence)

    def shrink(self, plan: StepPlan, *, overlapped: bool) -> Sequence | None:
        """The device had no memory for a step, which was taken back: smaller ones from here on.

        overlapped: another step was in flight with it. The sequence that cannot be computed even by
        itself, if it has come to that.
        """
        if not plan.grants:
            return None
        first = plan.grants[0].sequence
        others = len(self.running) - first.running
        if not self.size.shrink(plan.num_tokens, len(plan.grants), overlapped=overlapped, others=others):
            return first
        while len(self.running) > self.size.sequences:
            self.running[-1].preemptions += 1
            self._put_back(self.running[-1])
            self.preemptions += 1
        return None

    def kv_tokens(self) -> tuple[int, int]:
        """(cache positions allocated to running sequences, how many of those hold a computed token)."""
        memory = self.memory
        allocated = (memory.num_blocks - memory.available) * memory.block_size
        slack = sum(len(s.table.blocks) * memory.block_size - s.computed for s in self.running)
        return allocated, allocated - slack

    def check(self) -> None:
        """Assert the invariants of scheduler and memory; cheap enough for every simulated step."""
        self.memory.check(s.table for s in self.running)
        assert all(not s.table.blocks for s in self.waiting), "a waiting sequence holds blocks"
        live = [s for group in self._live.values() for s in group]
        assert self._priorities == Counter(s.request.priority for s in live), "a priority was miscounted"
        assert len(live) == len(self.waiting) + len(self.running), "a sequence is nowhere or twice"
        slots = [s.slot for s in self.running] + self._free_slots
        assert sorted(slots) == list(range(self.limits.max_running)), "a slot was lost or given twice"
        for queue in (self.waiting, self.running):
            assert all(a.rank < b.rank for a, b in pairwise(queue)), "a queue is out of order"

    def _advance(self, sequence: Sequence, step: StepInMaking) -> bool:
        """Grant a running sequence what the budget allows, at the cost of those behind it."""
        count = min(sequence.remaining, step.budget)
        start, end = sequence.computed, sequence.computed + count
        while not self.memory.can_grow(sequence.table, start, end):
            victim = self.running[-1]
            self._preempt(victim, step)
            if victim is sequence:
                return False
        step.grant(sequence, count, self.memory.grow(sequence.table, start, end))
        return True

    def _admit(self, step: StepInMaking, before: tuple[float, int], urgent: Sequence | None = None) -> None:
        """Start waiting sequences in order, up to a rank, while slots, memory and budget last.

        Once somebody was preempted nobody is started any more: whoever was put back would be next.
        """
        if len(self.running) >= self.size.sequences and len(self._priorities) < 2:
            return  # nobody gives way to an equal
        position = 0
        while position < len(self.waiting) and step.budget and not step.preempted:
            sequence = self.waiting[position]
            if sequence.rank > before:
                break
            if urgent is not None and urgent.goes_before(sequence):
                position += 1
                continue
            if self._should_wait(sequence):
                position += 1
                continue
            if not self._make_room(sequence, step):
                # Nobody overtakes for want of memory: a large request would starve.
                break
            # Not by its position: who was preempted for it is among them now.
            self.waiting.remove(sequence)
            self._place(sequence, step)
            self._advance(sequence, step)

    def _should_wait(self, sequence: Sequence) -> bool:
        """Whether what this sequence needs is being computed by another one right now."""
        if sequence.awaits_fork:
            return True
        if sequence.can_fork:
            return False
        if sequence.reads_prompt:
            return False
        coming = self.memory.peek(sequence.table, sequence.tokens).coming
        # Not for somebody behind: whoever comes between the two would be served before both.
        return coming is not None and coming < sequence.rank

    def _make_room(self, sequence: Sequence, step: StepInMaking) -> bool:
        """See that a slot and memory are there, preempting sequences of lower priority if need be."""
        while len(self.running) >= self.size.sequences or not self._fits(sequence):
            victim = self.running[-1] if self.running else None
            if victim is None or victim.rank < sequence.rank:
                return False
            if victim.request.priority <= sequence.request.priority:
                return False
            self._preempt(victim, step)
        return True

    def _fits(self, sequence: Sequence) -> bool:
        headroom = self._headroom if self.running else 0
        if sequence.can_fork:
            return 1 + headroom <= self.memory.available
        prefix = self.memory.peek(sequence.table, sequence.tokens, reuse=not sequence.reads_prompt)
        needed = self.memory.blocks_for(len(sequence.tokens)) - prefix.blocks
        return needed + headroom <= self.memory.available - prefix.idle

    def _place(self, sequence: Sequence, step: StepInMaking) -> None:
        assert not sequence.pending, "the slot would lack the token that is under way"
        if sequence.origin is not None and sequence.can_fork:
            # The last prompt token is computed again: this choice samples after it with its own noise.
            sequence.computed = sequence.prompt_len - 1
            sequence.table = self.memory.fork(sequence.origin.table, sequence.computed)
        else:
            sequence.computed = self.memory.adopt_prefix(
                sequence.table, sequence.tokens, sequence.rank, reuse=not sequence.reads_prompt
            )
        sequence.settled = sequence.computed
        if not sequence.admitted:
            sequence.admitted = True
            if sequence.origin is None:  # further choices share the first one's prompt: no hits
                sequence.cached = sequence.computed
                self.prefix_queries += sequence.prompt_len
                self.prefix_hits += sequence.cached
        sequence.slot = self._free_slots.pop()
        insort(self.running, sequence, key=_rank)
        step.admitted.append(sequence)

    def _preempt(self, victim: Sequence, step: StepInMaking) -> None:
        """Back to waiting; what it had is computed again, minus what the prefix tree still has."""
        self.preemptions += 1
        victim.preemptions += 1
        step.withdraw(victim)
        self._put_back(victim)

    def _put_back(self, sequence: Sequence) -> None:
        self._leave(sequence)
        sequence.computed = sequence.settled = 0
        insort(self.waiting, sequence, key=_rank)

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._free_slots.append(sequence.slot)
        sequence.slot = -1
        # What was computed for a sequence that gave no numbers is nothing to share.
        self.memory.release(sequence.table, keep=sequence.finish_reason != "error")

    def _end(self, sequence: Sequence) -> None:
        if sequence.running:
            self._leave(sequence)
        else:
            self.waiting.remove(sequence)
        priority = sequence.request.priority
        self._priorities[priority] -= 1
        if not self._priorities[priority]:
            del self._priorities[priority]
        group = self._live[sequence.request.id]
        group.remove(sequence)
        if not group:
            del self._live[sequence.request.id]

    def _window_end(self, now: float) -> float | None:
        """When the arrival window closes, if it is open: arrivals are held so that they start together."""
        if not self.limits.arrival_window or not self.waiting:
            return None
        if len(self.waiting) >= len(self._free_slots) or any(s.admitted for s in self.waiting):
            return None
        end = min(s.arrival for s in self.waiting) + self.limits.arrival_window
        return end if now < end else None


def _rank(sequence: Sequence) -> tuple[float, int]:
    return sequence.rank
