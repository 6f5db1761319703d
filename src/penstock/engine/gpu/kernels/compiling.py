"""Kernels compiled on all processors at once, where one after another would take most of a start.

What a step launches depends on shapes and types, so it is rehearsed: everything is called as it will be, but
no kernel is launched, and those that are yet to be compiled are noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
import triton
from triton.runtime.jit import JITFunction

from penstock.machine import usable_cpus

_MOST_THREADS = 16


@contextmanager
def rehearsal(device: torch.device) -> Iterator[None]:
    """Nothing that a kernel should have written may be relied on within, but to be a number that was there.

    At the end the kernels are compiled, or read from the cache on disk.
    """
    noted: list[tuple[Any, str]] = []

    def note(*, fn: Any, compile: dict[str, Any], **_: object) -> bool:
        noted.append((fn.jit_function, compile["specialization_data"]))
        return True  # do not compile it now

    launch, hook = JITFunction.run, triton.knobs.runtime.jit_cache_hook

    def prepare(self: Any, *args: Any, warmup: bool, **kwargs: Any) -> Any:
        """All that a launch does but the launch: one kernel would read what another has not written."""
        return launch(self, *args, warmup=True, **kwargs)

    JITFunction.run, triton.knobs.runtime.jit_cache_hook = prepare, note
    try:
        yield
    finally:
        JITFunction.run, triton.knobs.runtime.jit_cache_hook = launch, hook
    # The same one may have been called several times.
    with ThreadPoolExecutor(min(_MOST_THREADS, usable_cpus())) as pool:
        list(pool.map(lambda kernel: _compile(kernel[0], kernel[1], device), dict.fromkeys(noted)))


def _compile(function: Any, data: str, device: torch.device) -> None:
    with torch.cuda.device(device):  # threads begin with the first one
        kernel = function.preload(data)
        # Loads it and compiles the code that launches it, which takes a C compiler half a second.
        _ = kernel.run
