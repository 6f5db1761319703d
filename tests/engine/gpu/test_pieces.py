"""Steps with chunks of prompts, captured between attentions: what is replayed when, and that it is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from penstock.engine.gpu.decoder import RowInputs
from penstock.engine.gpu.graphs import Cut, Replay
from penstock.engine.gpu.pieces import Pieces, filled_up, worthwhile_rows
from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Room, Step
from tests.engine.gpu.test_model import BLOCK_SIZE, SMALL_HEADS, in_torch, on_gpu
from tests.engine.models.families import TYPICAL, make

LAYERS = 3
HIDDEN = 4


@pytest.mark.parametrize("rows", [1, 31, 32, 33, 128, 129, 1000, 2048, 2049, 8000])
def test_steps_are_filled_up_by_little(rows: int) -> None:
    size = filled_up(rows)
    assert rows <= size <= max(32, 2 * rows)
    assert rows <= 1024 or size < rows * 1.25
    assert filled_up(size) == size


def test_large_models_are_worth_capturing_for_few_rows_only() -> None:
    assert worthwhile_rows(15_000_000, 8192) == 8192
    assert 1000 < worthwhile_rows(218_000_000, 8192) < 2000


class Recorder:
    """Is a decoder and a capture that say what they are asked to do; attention comes between its layers."""

    skinny_rows = 0
    device = torch.device("cpu")

    def __init__(self, *, able: bool = True) -> None:
        self.log: list[str] = []
        self._able = able

    def attended(self, inputs: RowInputs, cache: Sequence[Any], attention: Any) -> tuple[Tensor, Tensor]:
        rows = inputs.tokens.shape[0]
        for layer in cache:
            self.log.append("compute")
            attention(torch.zeros(rows, 1, 1), layer, None, torch.zeros(rows, 1))
        return torch.ones(rows, HIDDEN), torch.ones(rows, 1)

    def finished(self, hidden: Tensor, attended: Tensor, wanted: Tensor | None) -> Tensor:
        return hidden if wanted is None else hidden[wanted]

    def attend(self, query: Tensor, cache: Any, window: int | None, out: Tensor) -> None:
        self.log.append(f"attend {cache}")

    def capture(self, compute: Callable[[Cut], None]) -> list[Replay] | None:
        before, cuts = len(self.log), [0]
        compute(lambda: cuts.append(len(cuts)))
        del self.log[before:]
        self.log.append("capture")
        if not self._able:
            return None

        def replay(number: int) -> Replay:
            return lambda: self.log.append(f"piece {number}")

        return [replay(number) for number in cuts]


def pieces_of(recorder: Recorder, most_rows: int = 100) -> Pieces:
    return Pieces(recorder, [0, 1, 2], recorder.capture, most_rows)  # type: ignore[arg-type]


def run(pieces: Pieces, recorder: Recorder, rows: int, wanted: list[int] | None = None) -> Tensor:
    buffers = pieces.buffers(rows)
    assert buffers is not None
    which = None if wanted is None else torch.tensor(wanted)
    inputs = RowInputs(buffers.tokens, buffers.positions, buffers.places, which)
    return pieces.forward(inputs, rows, recorder.attend)


EAGER = ["compute", "attend 0", "compute", "attend 1", "compute", "attend 2"]
REPLAYED = ["piece 0", "attend 0", "piece 1", "attend 1", "piece 2", "attend 2"]


def test_a_size_is_computed_once_and_then_replayed_around_attention() -> None:
    recorder = Recorder()
    pieces = pieces_of(recorder)
    run(pieces, recorder, 40)
    assert recorder.log == [*EAGER, "capture"]
    recorder.log.clear()
    run(pieces, recorder, 60)  # filled up to the same size
    assert recorder.log == REPLAYED


def test_a_size_that_cannot_be_captured_is_computed_each_time_and_not_tried_again() -> None:
    recorder = Recorder(able=False)
    pieces = pieces_of(recorder)
    run(pieces, recorder, 40)
    recorder.log.clear()
    run(pieces, recorder, 40)
    assert recorder.log == EAGER


def test_rows_that_fill_up_do_not_come_out() -> None:
    recorder = Recorder()
    pieces = pieces_of(recorder)
    for _ in range(2):
        assert run(pieces, recorder, 40).shape == (40, HIDDEN)
        assert run(pieces, recorder, 40, wanted=[3, 39]).shape == (2, HIDDEN)


def test_what_comes_out_is_not_where_the_next_step_computes() -> None:
    recorder = Recorder()
    pieces = pieces_of(recorder)
    first, second = run(pieces, recorder, 40), run(pieces, recorder, 40)
    assert run(pieces, recorder, 40).data_ptr() not in (first.data_ptr(), second.data_ptr())


def test_few_rows_and_too_many_are_left_to_others() -> None:
    recorder = Recorder()
    recorder.skinny_rows = 16
    pieces = pieces_of(recorder)
    assert pieces.buffers(16) is None
    assert pieces.buffers(17) is not None
    assert pieces.buffers(100) is not None
    assert pieces.buffers(101) is None


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["qwen3", "gemma2", "olmo2"])
def test_replayed_steps_compute_what_plain_torch_does(
    family: str, device: torch.device, tmp_path: Path
) -> None:
    """Prompts of other lengths and places again and again, in steps of few sizes: nothing of one step may be
    found in the next."""
    make(family, TYPICAL[family], tmp_path, num_hidden_layers=LAYERS, **SMALL_HEADS)
    ours, plain = on_gpu(tmp_path, device, without=("skinny",)), in_torch(tmp_path)
    models = [SimpleNamespace(model=ours), SimpleNamespace(model=plain)]
    slots_of, blocks = 4, 8
    for each in models:
        each.model.open(Room(slots_of * blocks, BLOCK_SIZE, 128, 128))
        each.slots = Slots(slots_of + 1, 128, blocks, each.model.device)
    ours.make_ready(models[0].slots)
    draw = torch.Generator().manual_seed(1)
    sizes = [(20, 9), (30, 1), (1, 1), (50, 40), (3, 60), (17, 22), (1, 29)] * 3
    with torch.inference_mode():
        for number, counts in enumerate(sizes):
            wanted = [0, sum(counts) - 1] if number % 2 else None
            order = torch.randperm(slots_of * blocks, generator=draw).to(torch.int32).view(slots_of, blocks)
            who = torch.randperm(slots_of, generator=draw)[: len(counts)].tolist()
            who = [slot for _, slot in sorted(zip(counts, who, strict=True), key=lambda pair: pair[0] > 1)]
            counts = sorted(counts, key=lambda count: count > 1)
            tokens = torch.randint(0, 100, (slots_of, 128), generator=draw).to(torch.int32)
            found = []
            for each in models:
                each.slots.blocks[:slots_of] = order.to(each.slots.blocks)
                each.slots.tokens[:slots_of, :128] = tokens.to(each.slots.tokens)
                step = Step(who, [0] * len(who), counts, [order[slot].tolist() for slot in who], wanted)
                found.append(each.model.logits(each.model.forward(step, each.slots)).cpu().clone())
            torch.testing.assert_close(found[0], found[1], rtol=2e-4, atol=2e-4)
    assert ours._pieces is not None
    captured = ours._pieces._captured
    assert {32, 64, 128} <= captured.keys()
    assert all(each is not None for each in captured.values())
