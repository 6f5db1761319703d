"""What a run under way has done so far: written by a load generator, read by who shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    """Counts since the run began."""

    tokens: int = 0  # output
    done: int = 0  # requests that ended well
    failed: int = 0  # requests that failed, hung or came short
    in_flight: int = 0
