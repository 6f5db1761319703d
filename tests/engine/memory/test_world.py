"""Memory behaves like its model and never shows anybody foreign content, whatever happens in whatever order.

Twice: hypothesis looks for a short way to break it, and seeded walks go far.
"""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.engine.memory.world import MemoryWorld

BLOCK_SIZES = (1, 2, 4)
randomness = st.randoms(use_true_random=False)


class MemoryMachine(RuleBasedStateMachine):
    world: MemoryWorld | None = None

    @initialize(
        blocks=st.integers(4, 20), block_size=st.sampled_from(BLOCK_SIZES), prefix_caching=st.booleans()
    )
    def build(self, blocks: int, block_size: int, prefix_caching: bool) -> None:
        self.world = MemoryWorld(blocks, block_size, prefix_caching)

    @rule(rng=randomness)
    def arrive(self, rng: Random) -> None:
        self.world.arrive(rng)

    @rule(rng=randomness)
    def resume(self, rng: Random) -> None:
        self.world.resume(rng)

    @rule(rng=randomness)
    def step(self, rng: Random) -> None:
        self.world.step(rng)

    @rule(rng=randomness)
    def leave(self, rng: Random) -> None:
        self.world.leave(rng)

    @invariant()
    def all_is_well(self) -> None:
        if self.world is not None:
            self.world.check()

    def teardown(self) -> None:
        if self.world is not None:
            self.world.close()


def test_hypothesis_finds_no_way_to_break_memory() -> None:
    options = settings(max_examples=60, stateful_step_count=40, derandomize=True)
    run_state_machine_as_test(MemoryMachine, settings=options)


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_long_random_walks_do_not_break_memory(block_size: int, prefix_caching: bool) -> None:
    for seed in range(40):
        rng = Random(seed)
        world = MemoryWorld(rng.randint(4, 24), block_size, prefix_caching)
        moves = [world.arrive, world.resume, world.step, world.step, world.step, world.leave]
        try:
            for _ in range(250):
                # A full house is as interesting as an empty one; a crowd that never moves is not.
                move = rng.choice(moves) if len(world.live) < 8 else rng.choice(moves[2:])
                move(rng)
                world.check()
            world.close()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
