"""Steps captured as CUDA graphs. Of a decode step forward and draw are one launch.

A graph is captured when its kind of step first comes, which is computed without one: so a server answers at
once. All graphs share one pool of memory, because they are replayed one after another on one stream and leave
nothing in it that is read later.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch

logger = logging.getLogger("penstock.engine")

MOST_GRAPHS = 128  # each takes some memory of the driver
Replay = Callable[[], None]
Capture = Callable[[Callable[[], None]], Replay | None]
Cut = Callable[[], None]


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
    """Captured steps by their kind, a bounded number of them."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        # The one used last is at the end. None: it could not be captured.
        self._captured: OrderedDict[Kind, Replay | None] = OrderedDict()

    def run(self, kind: Kind, compute: Callable[[], None]) -> None:
        """Do what `compute` does with the buffers it always uses."""
        replay = self._captured.get(kind)
        if replay is None:
            compute()
        else:
            replay()
        if kind in self._captured:
            self._captured.move_to_end(kind)
            return
        if len(self._captured) >= MOST_GRAPHS:
            # It has long come to its end: so many others have run since.
            self._captured.popitem(last=False)
        self._captured[kind] = self._capture(compute)


class Capturer:
    """Captures on a stream of its own, into one pool."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()
        self._failed = False

    def capture(self, compute: Callable[[], None]) -> Replay | None:
        """What does it again; None if it cannot be captured. It is not done now."""
        pieces = self.capture_pieces(lambda cut: compute())
        return None if pieces is None else pieces[0]

    def capture_pieces(self, compute: Callable[[Cut], None]) -> list[Replay] | None:
        """The same of something that calls what it is given wherever a piece ends and the next one begins. It
        may be called again, if memory that torch keeps must be given back first."""
        try:
            return self._captured(compute)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()  # which torch does not do while it captures
        except RuntimeError as error:
            self._fail(error)
            return None
        try:
            return self._captured(compute)
        except RuntimeError as error:
            self._fail(error)
            return None

    def _captured(self, compute: Callable[[Cut], None]) -> list[Replay]:
        graphs: list[torch.cuda.CUDAGraph] = []

        def begin() -> None:
            graphs.append(torch.cuda.CUDAGraph())
            graphs[-1].capture_begin(pool=self._pool, capture_error_mode="thread_local")

        def cut() -> None:
            graphs[-1].capture_end()
            begin()

        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            begin()
            try:
                compute(cut)
            finally:
                graphs[-1].capture_end()
        torch.cuda.current_stream().wait_stream(self._stream)
        return [graph.replay for graph in graphs]

    def _fail(self, error: RuntimeError) -> None:
        if not self._failed:
            self._failed = True
            logger.warning(
                "A step could not be captured and is launched kernel by kernel, which is slower (%s).",
                error,
            )
        if not isinstance(error, torch.OutOfMemoryError):
            # The allocator may take the former for busy still.
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream()
