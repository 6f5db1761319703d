"""Where the time of a decode step goes, kernel by kernel."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from penstock.engine.core import EngineCore

from .workloads import TEMPERATURE, Job, Workload

STEPS = 32
WIDTH = 90  # characters of a kernel's name


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    milliseconds: float  # of one step
    calls: float  # in one step


@dataclass(frozen=True, slots=True)
class Profile:
    batch: int
    step_ms: float  # by the host's clock, not profiled
    kernels: tuple[Kernel, ...]

    def lines(self) -> list[str]:
        busy = sum(kernel.milliseconds for kernel in self.kernels)
        lines = [
            f"decode step of {self.batch}: {self.step_ms:.3f} ms, of which {busy:.3f} ms in kernels",
            f"{'ms a step':>10} {'share':>6} {'calls':>6}  kernel",
        ]
        for kernel in self.kernels:
            share = kernel.milliseconds / self.step_ms
            row = f"{kernel.milliseconds:10.4f} {share:6.1%} {kernel.calls:6.1f}  {kernel.name[:WIDTH]}"
            lines.append(row)
        return lines


def decode_step(core: EngineCore, batch: int, prompt: int = 512) -> Profile:
    """Steps in which `batch` sequences decode, once their prompts are in and their graph is captured."""
    jobs = (Job(prompt, 4 * STEPS),) * batch
    workload = Workload("profile", "decodes", "ms", jobs, TEMPERATURE)
    for request in workload.requests(core.info.vocab_size, salt=str(batch)):
        core.submit(request)
    started: set[str] = set()
    while len(started) < batch:
        started |= {event.request_id for event in core.step() if event.token_ids}
    for _ in range(8):
        core.step()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(STEPS):
        core.step()
    torch.cuda.synchronize()
    step_ms = 1000 * (time.perf_counter() - began) / STEPS
    try:
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(STEPS):
                core.step()
            torch.cuda.synchronize()
    finally:
        while core.has_work:  # the next batch is to have the engine to itself
            core.step()
    kernels = [
        Kernel(entry.key, entry.self_device_time_total / 1000 / STEPS, entry.count / STEPS)
        for entry in profiler.key_averages()
        if entry.self_device_time_total > 0
    ]
    return Profile(batch, step_ms, tuple(sorted(kernels, key=lambda kernel: -kernel.milliseconds)))
