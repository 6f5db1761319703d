"""The memory of a server's process tree at its largest, while it is watched."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

SAMPLE_SECONDS = 0.2
PAGE = os.sysconf("SC_PAGE_SIZE")


class PeakMemory:
    """Resident bytes, summed over processes: reading proportional shares would cost the server its time."""

    def __init__(self, tree: Callable[[], list[int]]) -> None:
        self._tree = tree
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak = 0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.peak = max(self.peak, resident(self._tree()))


def resident(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return total
