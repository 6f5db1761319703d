"""The programs of `benchmarks` find their folders beside themselves; here they are told where that is."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
