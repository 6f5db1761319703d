"""What the hardware could do at best, measured in about two seconds: the limit beside every figure."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass

READ_BYTES = {"cpu": 2**29, "cuda": 2**32}  # far beyond the caches
MATRIX = {"cpu": 1024, "cuda": 8192}
LEAST_SECONDS = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    device: str
    threads: int  # of the CPU
    memory_read_gb_per_second: float
    fp32_gflop_per_second: float


def measure(device: str = "cpu", threads: int | None = None) -> Ceilings | None:
    """None where torch is not installed. `threads` None: torch's own choice."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    kind = "cuda" if device.startswith("cuda") else "cpu"
    wait = torch.cuda.synchronize if kind == "cuda" else None
    former = torch.get_num_threads()
    torch.set_num_threads(threads or former)
    try:
        with torch.inference_mode():
            buffer = torch.ones(READ_BYTES[kind] // 4, device=device)
            reading = _best(buffer.sum, wait)
            read_bytes = buffer.numel() * 4
            del buffer
            side = MATRIX[kind]
            left, right = torch.ones(side, side, device=device), torch.ones(side, side, device=device)
            multiplying = _best(lambda: left @ right, wait)
        return Ceilings(
            device=device,
            threads=torch.get_num_threads(),
            memory_read_gb_per_second=read_bytes / reading / 1e9,
            fp32_gflop_per_second=2 * side**3 / multiplying / 1e9,
        )
    finally:
        torch.set_num_threads(former)


def _best(work: Callable[[], object], wait: Callable[[], None] | None) -> float:
    """Seconds of the quickest of several calls: a ceiling is not an average."""
    quickest = float("inf")
    calls = 0
    until = time.perf_counter() + LEAST_SECONDS
    while calls < 3 or time.perf_counter() < until:
        start = time.perf_counter()
        work()
        if wait is not None:
            wait()
        quickest = min(quickest, time.perf_counter() - start)
        calls += 1
    return quickest
