"""Progress of a download that somebody else performs: the bytes a folder has grown to."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.hub.files import Progress

INTERVAL = 0.2  # seconds between two looks


@contextmanager
def watched(folder: Path, stage: str, total: int | None, progress: Progress | None) -> Iterator[None]:
    """Report the folder's growth to `progress` from another thread until the block ends."""
    if progress is None:
        yield
        return
    before = _bytes_under(folder)
    done = threading.Event()

    def look() -> None:
        while not done.wait(INTERVAL):
            grown = max(0, _bytes_under(folder) - before)
            progress(stage, grown if total is None else min(grown, total), total)

    progress(stage, 0, total)
    thread = threading.Thread(target=look, name="penstock-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _bytes_under(folder: Path) -> int:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(directory, name)).st_size
            except OSError:  # moved or removed while we looked
                continue
    return total
