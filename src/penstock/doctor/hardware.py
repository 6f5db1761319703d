"""Processor, memory and disk."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from penstock import machine
from penstock.doctor.finding import Finding, gib, listed
from penstock.errors import ModelError
from penstock.hub.files import home
from penstock.hub.known import DEFAULT

SECTION = "Machine"
LITTLE_MEMORY = 1 << 30  # bytes; below, not even the default model runs in comfort
# What matters to a model on a CPU, and the kernel's names of it; any one of them will do.
_FEATURES: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "AVX2": ("avx2",),
        "AVX-512": ("avx512f",),
        "VNNI": ("avx512_vnni", "avx_vnni"),
        "bf16": ("avx512_bf16", "amx_bf16"),
        "AMX": ("amx_tile",),
    },
    "aarch64": {
        "NEON": ("asimd",),
        "dotprod": ("asimddp",),
        "i8mm": ("i8mm",),
        "bf16": ("bf16",),
        "SVE": ("sve",),
    },
}
_NEEDED = {"x86_64": "AVX2", "aarch64": "NEON"}  # below it torch has only its slowest kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Memory and disk in bytes."""

    system: str
    architecture: str
    processor: str
    cpus: int  # of the machine
    cpus_allowed: int  # to this process
    cpu_quota: float | None  # CPUs' time a container may use
    features: tuple[str, ...]  # those of `_FEATURES` that are there
    memory_total: int
    memory_limit: int | None  # of a container
    memory_available: int
    cache: str | None  # the folder of fetched models; None where there is no place for it
    cache_writable: bool
    disk_free: int

    @property
    def cpus_usable(self) -> int:
        return machine.worth_a_thread(self.cpus_allowed, self.cpu_quota)


def look_at_machine() -> Machine:
    kind = platform.machine().replace("AMD64", "x86_64").replace("arm64", "aarch64")
    flags = machine.cpu_flags()
    try:
        cache: Path | None = home() / "models"
    except ModelError:
        cache = None
    existing = next((path for path in (cache, *cache.parents) if path.exists()), None) if cache else None
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        architecture=kind,
        processor=machine.processor(),
        cpus=os.cpu_count() or 1,
        cpus_allowed=machine.allowed_cpus(),
        cpu_quota=machine.cpu_quota(),
        features=tuple(
            name for name, names in _FEATURES.get(kind, {}).items() if not flags.isdisjoint(names)
        ),
        memory_total=machine.total_memory(),
        memory_limit=machine.memory_limit(),
        memory_available=machine.available_memory(),
        cache=str(cache) if cache else None,
        cache_writable=existing is not None and os.access(existing, os.W_OK | os.X_OK),
        disk_free=shutil.disk_usage(existing).free if existing else 0,
    )


def judge_machine(facts: Machine, *, model_is_here: bool) -> list[Finding]:
    return [_processor(facts), _features(facts), _memory(facts), _disk(facts, model_is_here)]


def _processor(facts: Machine) -> Finding:
    some = "1 CPU" if facts.cpus_allowed == 1 else f"{facts.cpus_allowed} CPUs"
    if facts.cpus_allowed < facts.cpus:
        some += f" of {facts.cpus} allowed to this process"
    if facts.cpu_quota is not None:
        some += f", of which the container may use {facts.cpu_quota:g}"
    return Finding(SECTION, "processor", "ok", f"{facts.processor} ({facts.architecture}), {some}.")


def _features(facts: Machine) -> Finding:
    known = _FEATURES.get(facts.architecture)
    if known is None:
        sentence = f"Nothing is known here about {facts.architecture} processors; torch decides."
        return Finding(SECTION, "features", "note", sentence)
    there = [name for name in known if name in facts.features]
    missing = [name for name in known if name not in facts.features]
    sentence = f"{listed(there) or 'Nothing that matters'} {'is' if len(there) < 2 else 'are'} there"
    sentence += f"; {listed(missing)} {'is' if len(missing) < 2 else 'are'} not." if missing else "."
    needed = _NEEDED[facts.architecture]
    if needed in missing:
        sentence += f" Without {needed} torch falls back to its slowest kernels."
        return Finding(SECTION, "features", "warning", sentence)
    return Finding(SECTION, "features", "ok", sentence)


def _memory(facts: Machine) -> Finding:
    sentence = f"{gib(facts.memory_total)}"
    if facts.memory_limit is not None:
        sentence += f", of which the container may have {gib(facts.memory_limit)}"
    sentence += f"; {gib(facts.memory_available)} available now."
    if facts.memory_available < LITTLE_MEMORY:
        return Finding(SECTION, "memory", "warning", f"{sentence} That is little: end other programs first.")
    return Finding(SECTION, "memory", "ok", sentence)


def _disk(facts: Machine, model_is_here: bool) -> Finding:
    move = "export PENSTOCK_HOME=/a/folder/with/space"
    needed = DEFAULT.wheel_bytes + DEFAULT.bytes
    if facts.cache is None:
        sentence = "There is no home folder to keep models in."
        return Finding(SECTION, "disk", "warning" if model_is_here else "problem", sentence, move)
    if not facts.cache_writable:
        sentence = f"The model cache {facts.cache} cannot be written to, so no model can be fetched into it."
        return Finding(SECTION, "disk", "note" if model_is_here else "problem", sentence, move)
    sentence = f"{gib(facts.disk_free)} free for models in {facts.cache}."
    if facts.disk_free < needed and not model_is_here:
        sentence += f" Fetching the default model takes {gib(needed)}."
        return Finding(SECTION, "disk", "problem", sentence, move)
    return Finding(SECTION, "disk", "warning" if facts.disk_free < needed else "ok", sentence)
