"""Decode steps captured as CUDA graphs: forward and draw are one launch.

A graph is captured when its kind of step first comes, which is computed without one: so a server answers at
once. All graphs share one pool of memory, because they are replayed one after another on one stream and leave
nothing in it that is read later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch

logger = logging.getLogger("penstock.engine")


@dataclass(frozen=True, slots=True)
class Kind:
    """What must be equal for a captured step to fit."""

    size: int  # sequences, filled up
    tiles: int  # of shared prefixes
    shared_splits: int  # pieces that shared prefixes are cut into
    filtered: bool  # whether somebody draws with top-k, top-p or min-p


def padded_size(sequences: int, most: int) -> int:
    """Sizes that steps are filled up to: close together, for a row of padding costs as much as another."""
    if sequences <= 8:
        size = 1 << (sequences - 1).bit_length()
    elif sequences <= 256:
        size = -(-sequences // 8) * 8
    else:
        size = -(-sequences // 32) * 32
    return min(size, most)


class Graphs:
    def __init__(self) -> None:
        self._captured: dict[Kind, torch.cuda.CUDAGraph | None] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()

    def run(self, kind: Kind, compute: Callable[[], None]) -> None:
        """Do what `compute` does with the buffers it always uses."""
        graph = self._captured.get(kind)
        if graph is not None:
            graph.replay()
            return
        compute()
        if kind not in self._captured:
            self._captured[kind] = self._capture(compute)

    def __len__(self) -> int:
        return len(self._captured)

    def _capture(self, compute: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            try:
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    compute()
                finally:
                    graph.capture_end()
            except torch.OutOfMemoryError:
                logger.warning("There is no memory to capture a decode step; it is launched piece by piece.")
                return None
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph
