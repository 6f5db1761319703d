"""What an examination yields: findings, each a sentence with a status and, where it helps, a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# A problem prevents serving; a warning is worth acting on; a note is worth knowing.
Status = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    section: str
    name: str
    status: Status
    sentence: str
    command: str | None = None  # what to type


def gib(count: float) -> str:
    """Bytes as people say them; binary, as memory is sold and limited."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if count < 100 * size else f"{count / size:.0f} {unit}"
    return f"{count:.0f} bytes"


def listed(words: list[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
