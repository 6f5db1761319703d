"""What a server's start came to, and what follows for whether it stays. Pure."""

from __future__ import annotations

from dataclasses import dataclass

COSTLY_SECONDS = 20.0  # a server that starts within this is started for each of its turns
QUIET = 0.02  # of one core


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a server."""

    seconds: float  # from the start of the process until its first answer was complete
    idle_bytes: int  # of the process tree, after that answer
    idle_cores: float  # processor time an idle second


def stays(start: Start, available: int, total: int) -> bool:
    """Whether a server may stay started, idle, while others are measured; bytes of the machine's memory.

    Nothing else should run then, so most do not: only one whose start costs much, that leaves the cores
    alone while idle, and that leaves half of the memory to others.
    """
    return start.seconds > COSTLY_SECONDS and start.idle_cores < QUIET and available > total / 2
