"""Captured steps: which are kept, which sizes there are, and what a failed capture leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch

from penstock.engine.gpu.graphs import Capturer, Graphs, Kind, padded_size


def kind(size: int) -> Kind:
    return Kind(size, 0, 0, filtered=False)


class Recorder:
    """Replays what it captured by saying so, for those that it can capture."""

    def __init__(self, unable: tuple[str, ...] = ()) -> None:
        self.log: list[str] = []
        self._unable = unable

    def compute(self, name: str) -> Callable[[], None]:
        return lambda: self.log.append(f"compute {name}")

    def capture(self, compute: Callable[[], None]) -> Callable[[], None] | None:
        compute()
        name = self.log.pop().removeprefix("compute ")
        self.log.append(f"capture {name}")
        return None if name in self._unable else lambda: self.log.append(f"replay {name}")


def test_a_kind_of_step_is_computed_once_and_replayed_from_then_on() -> None:
    recorder = Recorder()
    graphs = Graphs(recorder.capture)
    for size in (1, 2, 1, 1, 2):
        graphs.run(kind(size), recorder.compute(str(size)))
    assert recorder.log == [
        "compute 1", "capture 1", "compute 2", "capture 2", "replay 1", "replay 1", "replay 2",
    ]  # fmt: skip


def test_the_graph_that_was_not_used_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engine.gpu.graphs.MOST_GRAPHS", 2)
    recorder = Recorder()
    graphs = Graphs(recorder.capture)
    for size in (1, 2, 1, 3):
        graphs.run(kind(size), recorder.compute(str(size)))
    recorder.log.clear()
    for size in (1, 3, 2):
        graphs.run(kind(size), recorder.compute(str(size)))
    assert recorder.log == ["replay 1", "replay 3", "compute 2", "capture 2"]


def test_what_cannot_be_captured_is_computed_each_time_and_not_tried_again() -> None:
    recorder = Recorder(unable=("1",))
    graphs = Graphs(recorder.capture)
    for size in (1, 1, 2, 2):
        graphs.run(kind(size), recorder.compute(str(size)))
    assert recorder.log == ["compute 1", "capture 1", "compute 1", "compute 2", "capture 2", "replay 2"]


@pytest.mark.parametrize("most", [1, 5, 13, 256, 257, 300])
def test_steps_are_filled_up_to_few_sizes_and_never_beyond_the_most(most: int) -> None:
    sizes = [padded_size(sequences, most) for sequences in range(1, most + 1)]
    assert all(sequences <= size <= most for sequences, size in enumerate(sizes, 1))
    assert sizes == sorted(sizes)
    assert [padded_size(size, most) for size in sizes] == sizes, "a size is its own"
    assert sizes[-1] == most


@pytest.mark.parametrize(
    ("most", "sizes"), [(5, [1, 2, 4, 5]), (13, [1, 2, 4, 8, 13]), (257, [1, 2, 4, *range(8, 257, 8), 257])]
)
def test_the_largest_step_has_a_size_of_its_own(most: int, sizes: list[int]) -> None:
    assert sorted({padded_size(sequences, most) for sequences in range(1, most + 1)}) == sizes


@pytest.mark.gpu
def test_a_capture_that_fails_harms_neither_its_step_nor_later_captures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    graphs = Graphs(Capturer().capture)
    numbers = torch.zeros(4, device="cuda")

    def waits() -> None:
        numbers.add_(1)
        torch.cuda.current_stream().synchronize()  # not allowed in a graph

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            graphs.run(kind(1), waits)
            graphs.run(kind(2), waits)
    assert numbers.tolist() == [4.0] * 4
    assert caplog.text.count("could not be captured") == 1
    for _ in range(3):
        graphs.run(kind(3), lambda: numbers.mul_(2))
    assert numbers.tolist() == [32.0] * 4


@pytest.mark.gpu
def test_pieces_share_what_they_compute_and_fail_together() -> None:
    capturer = Capturer()
    numbers, seen = torch.zeros(4, device="cuda"), []

    def compute(cut: Callable[[], None], *, waits: bool = False) -> None:
        doubled = numbers * 2
        cut()
        if waits:
            torch.cuda.current_stream().synchronize()
        numbers.add_(doubled + 1)

    pieces = capturer.capture_pieces(compute)
    assert pieces is not None
    assert len(pieces) == 2
    assert capturer.capture_pieces(lambda cut: compute(cut, waits=True)) is None
    assert capturer.capture_pieces(compute) is not None
    for _ in range(3):
        for piece in pieces:
            piece()
        seen.append(float(numbers[0]))
    assert seen == [1.0, 4.0, 13.0]
