"""What the kernel tells of processes: who descends from whom, and since when one runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

PROC = Path("/proc")


def process_tree(root: int) -> list[int]:
    """The ids of a process and of its descendants; empty when it is no more."""
    children: dict[int, list[int]] = {}
    alive = set()
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            alive.add(int(entry.name))
            children.setdefault(parent, []).append(int(entry.name))
    found = [root] if root in alive else []
    for process in found:  # grows while it is read
        found += children.get(process, ())
    return found


def process_age(process: int) -> float:
    """Seconds since a process was started."""
    ticks = int(_fields(PROC / str(process))[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _parent(entry: Path) -> int | None:
    try:
        state, parent = _fields(entry)[:2]
    except OSError:
        return None
    return None if state == b"Z" else int(parent)  # a zombie is no more


def _fields(entry: Path) -> list[bytes]:
    """From the state on: the name before it, in brackets, may itself have spaces and brackets."""
    stat = (entry / "stat").read_bytes()
    return stat[stat.rindex(b")") + 1 :].split()
