"""Machines to judge, made of facts."""

from __future__ import annotations

from typing import Any

from penstock.doctor.ask import Gpu, Probe, Torch
from penstock.doctor.hardware import Machine

GIB = 1 << 30


def machine(**facts: Any) -> Machine:
    usual = {
        "system": "Linux 6.1",
        "architecture": "x86_64",
        "processor": "Some CPU",
        "cpus": 8,
        "cpus_allowed": 8,
        "cpu_quota": None,
        "features": ("AVX2", "AVX-512", "VNNI", "bf16", "AMX"),
        "memory_total": 32 * GIB,
        "memory_limit": None,
        "memory_available": 24 * GIB,
        "cache": "/home/someone/.cache/penstock/models",
        "cache_writable": True,
        "disk_free": 100 * GIB,
    }
    return Machine(**(usual | facts))


def torch(**facts: Any) -> Torch:
    usual = {
        "version": "2.13.0+cpu",
        "cuda": None,
        "rocm": None,
        "onednn": True,
        "kernels": "AVX512",
        "threads": 8,
    }
    return Torch(**(usual | facts))


def probe(**facts: Any) -> Probe:
    return Probe(**({"torch": torch()} | facts))


GPU = Gpu(name="NVIDIA Some", memory_total=80 * GIB, memory_free=79 * GIB)
