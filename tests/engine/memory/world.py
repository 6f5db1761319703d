"""KV memory, its model and a pretended device side by side, doing whatever a random source says."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from penstock.engine.memory.manager import BlockTable, KVMemory
from tests.engine.memory.device import Device
from tests.engine.memory.model import Model, ModelTable

SALTS = ("", "acme")
LETTERS = (0, 1)  # two: prefixes meet and part all the time
LONGEST = 14


@dataclass(eq=False)
class Live:
    """A sequence as the scheduler would hold it, with a slot of its own."""

    slot: int
    salt: str
    tokens: list[int]
    table: BlockTable
    twin: ModelTable  # the model's view of `table`
    rank: tuple[float, int]
    computed: int = 0


@dataclass
class Step:
    """A plan in the making: copies in order, and who writes what after all of them."""

    copies: list[tuple[int, int]] = field(default_factory=list)
    grants: dict[Live, int] = field(default_factory=dict)


class MemoryWorld:
    def __init__(self, blocks: int, block_size: int, prefix_caching: bool) -> None:
        self.memory = KVMemory(blocks, block_size, prefix_caching=prefix_caching)
        self.model = Model(blocks, block_size, prefix_caching)
        self.device = Device(blocks, block_size)
        self.live: list[Live] = []
        self.paused: list[Live] = []
        self.slots = 0

    # What may happen between two steps of the device.

    def arrive(self, rng: Random) -> None:
        salt = rng.choice(SALTS)
        prompt = [rng.choice(LETTERS) for _ in range(rng.randint(1, LONGEST))]
        rank = (float(rng.randint(0, 3)), self.slots)
        self._admit(Live(self.slots, salt, prompt, self.memory.new_table(salt), ModelTable(salt), rank))
        self.slots += 1

    def resume(self, rng: Random) -> None:
        """A preempted sequence comes back with everything it had, and perhaps a token more."""
        if self.paused:
            sequence = self.paused.pop(rng.randrange(len(self.paused)))
            sequence.tokens += [rng.choice(LETTERS)] * rng.randint(0, 1)
            self._admit(sequence)

    def leave(self, rng: Random) -> None:
        """One in four leaves because its output was broken, and what it computed is to be forgotten."""
        if self.live:
            self.release(rng.choice(self.live), keep=rng.random() < 0.75)

    def step(self, rng: Random) -> None:
        """One plan: grants, forks and departures in any order, then the device's work."""
        step = Step()
        for _ in range(rng.randint(1, 4)):
            if not self.live:
                break
            sequence = rng.choice(self.live)
            match rng.choice(("grant", "grant", "grant", "fork", "leave")):
                case "grant" if sequence not in step.grants:
                    self._grant(step, sequence, rng)
                case "fork":
                    self._fork(sequence, rng)
                case "leave":
                    # Preempted in mid-plan: its grant goes, its copy stays in the list.
                    step.grants.pop(sequence, None)
                    self.release(sequence)
        self._execute(step)

    def release(self, sequence: Live, *, keep: bool = True) -> None:
        self.memory.release(sequence.table, keep=keep)
        self.model.release(sequence.twin, keep=keep)
        assert sequence.table.blocks == []
        sequence.computed = 0
        self.device.forget(sequence.slot)
        self.live.remove(sequence)
        if len(sequence.tokens) < LONGEST:
            self.paused.append(sequence)

    def check(self) -> None:
        self._check_counts()
        self._check_sharing()
        for sequence in self.live:
            self.device.read(sequence.table, sequence.tokens, sequence.computed)

    def close(self) -> None:
        """Everybody goes: every block must be free or reusable afterwards, and nobody awaited."""
        for sequence in list(self.live):
            self.release(sequence)
            self.check()
        assert self.memory.available == self.memory.num_blocks
        for sequence in self.paused:
            assert self.memory.peek(sequence.table, sequence.tokens).coming is None, "somebody is awaited"

    def _admit(self, sequence: Live) -> None:
        memory, model = self.memory, self.model
        matching = model.matching(sequence.salt, sequence.tokens)
        prefix = memory.peek(sequence.table, sequence.tokens)
        assert prefix.blocks == len(matching)
        assert prefix.idle == sum(1 for cell in matching if not cell.holders)
        if prefix.coming is not None:
            awaited = sequence.tokens[: (prefix.blocks + 1) * memory.block_size]
            (owner,) = (other for other in self.live if other.rank == prefix.coming)
            assert owner.salt == sequence.salt
            assert owner.tokens[: len(awaited)] == awaited, "a block is awaited that nobody computes"
        model.adopt(sequence.twin, sequence.tokens)
        sequence.computed = memory.adopt_prefix(sequence.table, sequence.tokens, sequence.rank)
        assert sequence.computed == len(matching) * memory.block_size
        assert sequence.computed < len(sequence.tokens)
        self.live.append(sequence)

    def _grant(self, step: Step, sequence: Live, rng: Random) -> None:
        if sequence.computed == len(sequence.tokens):
            sequence.tokens.append(rng.choice(LETTERS))
        start = sequence.computed
        end = start + rng.randint(1, len(sequence.tokens) - start)
        fits = self.model.missing(sequence.twin, start, end) <= self.model.available
        assert self.memory.can_grow(sequence.table, start, end) == fits
        if not fits:
            return
        copies = self.model.must_copy(sequence.twin, start)
        copy = self.memory.grow(sequence.table, start, end)
        self.model.grow(sequence.twin, start, end)
        assert (copy is not None) == copies
        if copy is not None:
            step.copies.append(copy)
        step.grants[sequence] = end - start

    def _fork(self, sequence: Live, rng: Random) -> None:
        shared = rng.randint(0, sequence.computed)
        tokens = [*sequence.tokens[:shared], rng.choice(LETTERS)]
        table = self.memory.fork(sequence.table, shared)
        twin = self.model.fork(sequence.twin, shared)
        rank = (sequence.rank[0], self.slots)
        self.live.append(Live(self.slots, sequence.salt, tokens, table, twin, rank, shared))
        self.slots += 1

    def _execute(self, step: Step) -> None:
        """As the runner does: copies, then tables, then all writes; and the scheduler commits."""
        self.device.copy(step.copies)
        for sequence in step.grants:
            self.device.update(sequence.slot, sequence.table)
        for sequence, count in step.grants.items():
            start = sequence.computed
            # What the new tokens attend to must be there before they are computed.
            self.device.read(sequence.table, sequence.tokens, start)
            self.device.write(sequence.slot, sequence.tokens, start, start + count)
        for sequence, count in step.grants.items():
            sequence.computed += count
            self.memory.commit(sequence.table, sequence.tokens, sequence.computed)
            self.model.commit(sequence.twin, sequence.tokens, sequence.computed)

    def _check_counts(self) -> None:
        self.memory.check(sequence.table for sequence in self.live)
        assert self.memory.num_free == self.model.free
        assert self.memory.num_cached == len(self.model.idle)
        assert self.memory.available == self.model.available

    def _check_sharing(self) -> None:
        """Two tables have a block in common exactly where the model says so, and never two tenants."""
        block_of: dict[int, int] = {}
        salt_of: dict[int, str] = {}
        for sequence in self.live:
            for block, cell in zip(sequence.table.blocks, sequence.twin.cells, strict=True):
                assert block_of.setdefault(id(cell), block) == block
                assert salt_of.setdefault(block, sequence.salt) == sequence.salt, "two tenants share a block"
        assert len(set(block_of.values())) == len(block_of), "one block serves as two"
