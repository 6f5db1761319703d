"""Penstock's commands, as scripts use them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def penstock(*arguments: str, state: Path) -> Any:
    """What a command about keys or usage prints as JSON."""
    command = [sys.executable, "-m", "penstock", *arguments, "--json", "--state-dir", str(state)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
