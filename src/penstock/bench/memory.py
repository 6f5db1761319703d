"""The memory of a process and all its children, and the most it was while something ran.

A page that several processes share counts once (proportional set size) where the kernel tells;
elsewhere resident pages are summed, which counts shared ones again.
"""

from __future__ import annotations

import os
import threading
import time

from penstock.bench.processes import PROC, process_tree

LEAST_SECONDS = 0.2  # between two samples
# Counting pages holds a lock of the measured process: samples take at most this share of the time.
SHARE = 0.01


def tree_memory(root: int) -> int | None:
    """Bytes; None when the process is no more, or this system does not tell."""
    try:
        tree = process_tree(root)
    except OSError:
        return None
    sizes = [size for process in tree if (size := _memory(process)) is not None]
    return sum(sizes) if sizes else None


class MemorySampler:
    """Looks now and then while it is entered; `peak` is the most it saw, None if it never could."""

    def __init__(self, root: int | None) -> None:
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-sampler", daemon=True)
        self.peak: int | None = None

    def __enter__(self) -> MemorySampler:
        if self._root is not None:
            self._sample()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._root is not None:
            self._stop.set()
            self._thread.join()
            self._sample()

    def _watch(self) -> None:
        pause = LEAST_SECONDS
        while not self._stop.wait(pause):
            start = time.perf_counter()
            self._sample()
            pause = max(LEAST_SECONDS, (time.perf_counter() - start) / SHARE)

    def _sample(self) -> None:
        assert self._root is not None
        if (size := tree_memory(self._root)) is not None:
            self.peak = max(self.peak or 0, size)


def _memory(process: int) -> int | None:
    try:
        for line in (PROC / str(process) / "smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # another user's process, or a kernel that does not tell
    try:
        resident = int((PROC / str(process) / "statm").read_bytes().split()[1])
    except OSError:
        return None
    return resident * os.sysconf("SC_PAGE_SIZE")
