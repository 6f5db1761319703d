"""What the hardware could do at best, measured in two to three seconds: the limit beside every figure."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from penstock.machine import usable_cpus

# Bytes read at once: far beyond the caches, and well within the last of them.
LARGE_READ = {"cpu": 2**29, "cuda": 2**32}
CACHE_READ = {"cpu": 2**23, "cuda": 2**24}
# Rows x inner x columns: large enough that the multipliers are the limit, not the memory.
SHAPE = {"cpu": (256, 1024, 3072), "cuda": (8192, 8192, 8192)}
SECONDS = 2.5  # of all measurements together, beside making the buffers
LEAST_CALLS = 3

# Operations/s that bound a model's matrices, by the precision it computes in.
FIGURE_OF_PRECISION = {
    "float32": "fp32_gflop_per_second",
    "int8": "int8_gop_per_second",
    "bfloat16": "bf16_gflop_per_second",
    "float16": "bf16_gflop_per_second",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """None: this machine, or what is installed on it, cannot do that. 1 GB is 1e9 bytes."""

    device: str
    threads: int  # of the CPU
    memory_read_gb_per_second: float
    cache_read_gb_per_second: float | None = None
    fp32_gflop_per_second: float
    bf16_gflop_per_second: float | None = None  # measured on CUDA only
    int8_gop_per_second: float | None = None
    measured_with: str = "torch"

    def matmul(self, precision: str) -> float | None:
        """GFLOP/s, or GOP/s, that bound the matrices of a model that computes in `precision`."""
        name = FIGURE_OF_PRECISION.get(precision)
        return None if name is None else getattr(self, name)


def measure(device: str = "cpu", threads: int | None = None, seconds: float = SECONDS) -> Ceilings:
    """`threads` None: as many as the engine takes, which torch need not. Half the time is for the memory."""
    count = threads or usable_cpus()
    if importlib.util.find_spec("torch") is None:
        return _with_numpy(count, seconds)
    return _with_torch(device, count, seconds)


def _with_torch(device: str, threads: int, seconds: float) -> Ceilings:
    import torch

    kind = "cuda" if device.startswith("cuda") else "cpu"
    wait = torch.cuda.synchronize if kind == "cuda" else None
    former = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            buffer = torch.ones(LARGE_READ[kind] // 4, device=device)
            large = _best(buffer.sum, seconds / 4, wait)
            part = buffer[: CACHE_READ[kind] // 4].clone()
            cached = _best(part.sum, seconds / 4, wait)
            del buffer
            rows, inner, columns = SHAPE[kind]
            work = 2 * rows * inner * columns

            def rate(multiply: Callable[[Any, Any], object], dtype: torch.dtype) -> float | None:
                # Random: a GPU multiplies equal numbers faster, as they take less power.
                left = (torch.rand(rows, inner, device=device) * 250 - 125).to(dtype)
                right = (torch.rand(columns, inner, device=device) * 250 - 125).to(dtype).t()  # as stored
                try:
                    return work / _best(lambda: multiply(left, right), seconds / 4, wait) / 1e9
                except RuntimeError:  # no such kernel for this device
                    return None

            return Ceilings(
                device=device,
                threads=torch.get_num_threads(),
                memory_read_gb_per_second=LARGE_READ[kind] / large / 1e9,
                cache_read_gb_per_second=CACHE_READ[kind] / cached / 1e9,
                fp32_gflop_per_second=rate(torch.matmul, torch.float32) or 0.0,
                bf16_gflop_per_second=rate(torch.matmul, torch.bfloat16) if kind == "cuda" else None,
                int8_gop_per_second=rate(torch._int_mm, torch.int8),
            )
    finally:
        torch.set_num_threads(former)


def _with_numpy(threads: int, seconds: float) -> Ceilings:
    """Each thread reads its part: numpy lets go of the interpreter while it sums."""
    import numpy as np

    buffer = np.ones(LARGE_READ["cpu"] // 4, dtype=np.float32)
    rows, inner, columns = SHAPE["cpu"]
    left, right = np.ones((rows, inner), np.float32), np.ones((inner, columns), np.float32)
    with ThreadPoolExecutor(threads) as pool:

        def reading(size: int) -> float:
            parts = np.array_split(buffer[: size // 4], threads)
            return size / _best(lambda: list(pool.map(np.sum, parts)), seconds / 4) / 1e9

        large, cached = reading(LARGE_READ["cpu"]), reading(CACHE_READ["cpu"])
    multiplying = _best(lambda: left @ right, seconds / 4)
    return Ceilings(
        device="cpu",
        threads=threads,
        memory_read_gb_per_second=large,
        cache_read_gb_per_second=cached,
        fp32_gflop_per_second=2 * rows * inner * columns / multiplying / 1e9,
        measured_with="numpy",
    )


def _best(work: Callable[[], object], seconds: float, wait: Callable[[], None] | None = None) -> float:
    """Seconds of the quickest of several calls: a ceiling is not an average."""
    quickest = float("inf")
    calls = 0
    until = time.perf_counter() + seconds
    while calls < LEAST_CALLS or time.perf_counter() < until:
        start = time.perf_counter()
        work()
        if wait is not None:
            wait()
        quickest = min(quickest, time.perf_counter() - start)
        calls += 1
    return quickest
