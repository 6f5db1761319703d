"""On what a figure was measured: the machine and the versions. Imports nothing heavy."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from penstock import __version__
from penstock.machine import processor, total_memory, usable_cpus

PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "gguf", "msgspec", "starlette", "uvicorn")


def versions() -> dict[str, str]:
    found = {"penstock": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "cores": usable_cpus(),
        "memory_gib": round(total_memory() / 2**30, 1),
    }
