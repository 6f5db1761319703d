"""A step's inputs, as they are built from its slots."""

from __future__ import annotations

import torch

from penstock.engine.gpu.cache import allocate
from penstock.engine.gpu.inputs import Layout, RowBuffers, Scores, mixed_step
from penstock.engine.gpu.kernels.decode_attention import workspace
from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Step

BLOCK, SCRATCH = 16, 7 * 16


def test_rows_that_only_fill_up_a_step_go_to_scratch_and_the_others_are_as_without_them(
    device: torch.device,
) -> None:
    slots = Slots(4, 64, 4, device)
    slots.tokens.copy_(torch.arange(4 * 65, dtype=torch.int32).reshape(4, 65))
    slots.blocks.copy_(torch.tensor([[3, 1, 0, 0], [2, 5, 0, 0], [4, 0, 0, 0], [6, 0, 0, 0]]))
    [layer] = allocate(1, 2, 8, BLOCK, 64, torch.float32, device)
    room = workspace(4, 4, 64, 8, device, longest=64, windows={None})
    # One token of slot 2, then a chunk of five of slot 0, over the border of its blocks.
    layout = Layout.of(Step(slots=[2, 0], starts=[9, 13], counts=[1, 5], tables=[[4], [3, 1]], wanted=[0, 5]))
    made = []
    for size in (layout.rows, 16):
        buffers = RowBuffers.of(size, device)
        inputs, attention = mixed_step(
            layout, slots, layer, Scores(1.0, None), room, buffers, block_size=BLOCK, scratch=SCRATCH
        )
        assert inputs.wanted is not None
        assert inputs.wanted.tolist() == [0, 5]
        assert attention.decodes is not None
        assert attention.decodes.lengths.tolist() == [10]
        assert attention.chunks is not None
        made.append(inputs)
    exact, filled = made
    assert exact.tokens.tolist() == [2 * 65 + 9, 13, 14, 15, 16, 17]
    assert exact.places.tolist() == [4 * 16 + 9, 3 * 16 + 13, 3 * 16 + 14, 3 * 16 + 15, 16, 17]
    for name in ("tokens", "positions", "places"):
        assert torch.equal(getattr(filled, name)[:6], getattr(exact, name)), name
    assert filled.places[6:].tolist() == [SCRATCH] * 10
    assert filled.positions[6:].tolist() == [0] * 10
