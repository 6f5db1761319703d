"""Asking what needs a process of its own: the probe of torch, and the driver's tool."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.engine.config import Task

PROBE_SECONDS = 30.0  # torch from a cold disk takes ten
DRIVER_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    version: str
    cuda: str | None  # the CUDA it was built for
    rocm: str | None
    onednn: bool
    kernels: str  # the widest instruction set it uses
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Memory in bytes."""

    name: str
    memory_total: int
    memory_free: int
    capability: str | None = None  # None as long as torch does not see it


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What the engine makes of a model's headers; with a `refusal`, nothing else is known."""

    refusal: str | None = None
    task: Task | None = None
    architecture: str | None = None  # as the engine calls it
    kv_per_token: int | None = None  # numbers, not bytes
    context: int | None = None  # tokens
    int8: bool = False  # the native kernels can compute it here, on the CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What torch said. Without it, `error` says why; None means that it is not installed."""

    torch: Torch | None = None
    error: str | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_error: str | None = None
    kernels: bool | None = None  # the native kernels could be loaded; None: nobody tried
    models: dict[str, Opinion] = field(default_factory=dict)  # by path


def ask_torch(models: Sequence[str] = ()) -> Probe:
    """One short-lived process that imports torch and looks at these models as the engine would."""
    if importlib.util.find_spec("torch") is None:
        return Probe()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.doctor.probe"],
            input=json.dumps({"models": list(models)}),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PROBE_SECONDS,
            check=False,
            cwd=None if folder_exists() else os.sep,  # torch does not start where there is no folder
        )
    except subprocess.TimeoutExpired:
        return Probe(error=f"Importing it takes longer than {PROBE_SECONDS:.0f} seconds.")
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        last = done.stderr.strip().splitlines()[-1:] or ["It said nothing."]
        return Probe(error=f"The process that imported it ended with {how}: {last[0]}")
    if "torch" not in answer:
        return Probe(error=answer["error"])
    return Probe(
        torch=Torch(**answer["torch"]),
        gpus=tuple(Gpu(**gpu) for gpu in answer["gpus"]),
        gpu_error=answer["gpu_error"],
        kernels=answer["kernels"],
        models={path: Opinion(**opinion) for path, opinion in answer["models"].items()},
    )


def folder_exists() -> bool:
    """Whether the working folder is still there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def ask_driver() -> tuple[Gpu, ...]:
    """The GPUs NVIDIA's driver knows of, whatever torch thinks; none where there is no driver."""
    query = "--query-gpu=name,memory.total,memory.free"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=DRIVER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(_gpu(line) for line in done.stdout.splitlines() if line.count(",") == 2)


def _gpu(line: str) -> Gpu:
    name, total, free = (part.strip() for part in line.split(","))
    mebibytes = [int(part) if part.isdecimal() else 0 for part in (total, free)]
    return Gpu(name=name, memory_total=mebibytes[0] << 20, memory_free=mebibytes[1] << 20)
