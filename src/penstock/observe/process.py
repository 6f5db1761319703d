"""What the operating system says of this process."""

from __future__ import annotations

import os
from pathlib import Path


def resident_bytes() -> int | None:
    """Memory that it holds; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
