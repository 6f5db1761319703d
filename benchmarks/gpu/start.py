"""From the start of a process to its first token: with kernels compiled before, and with none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIMIT = 300.0  # seconds


def measure(program: Path, arguments: Sequence[str], folder: Path) -> dict[str, Any]:
    """First in an empty folder for compiled kernels, then in the same one again. The files of torch and of
    this project are in memory by then: this process has read them."""
    kernels = folder / "kernels"
    environment = {**os.environ, "TRITON_CACHE_DIR": str(kernels), "CUDA_CACHE_PATH": str(kernels / "cuda")}
    command = [sys.executable, str(program), "--start-one", *arguments]
    return {kind: _once(command, environment) for kind in ("cold", "warm")}


def _once(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Seconds: `total` by the clock of who starts the process, the rest by its own."""
    began = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        total = time.perf_counter() - began
        process.wait(LIMIT)
    if process.returncode or not line:
        raise RuntimeError(f"The engine did not start: {' '.join(command)} ended with {process.returncode}.")
    return {"total": total, **json.loads(line)}
