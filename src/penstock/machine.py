"""What the process may use of the machine under it: processor, CPUs, memory.

Containers are given less than the machine has, and say so in control groups: those of this process
and all above it count, in both versions. The standard library alone; every function takes the root
of the file system, so that other machines can be looked at too.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def processor(root: Path = ROOT) -> str:
    """The processor's name as its maker gives it, or its architecture where there is none."""
    named = _cpuinfo(root).get("model name", "")
    return named or platform.processor() or platform.machine()


def cpu_flags(root: Path = ROOT) -> frozenset[str]:
    """The instruction sets in the kernel's spelling: avx512f, amx_tile, asimd, i8mm ..."""
    fields = _cpuinfo(root)
    return frozenset((fields.get("flags") or fields.get("Features") or "").split())


def allowed_cpus() -> int:
    """The CPUs this process may be scheduled on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(root: Path = ROOT) -> float | None:
    """How many CPUs' time the container may use; None without a limit."""
    quotas = []
    for folder in _control_groups("cpu", root):
        words = (_text(folder / "cpu.max") or "").split()  # version 2: quota and period, microseconds
        if not words:
            words = [_text(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
        try:
            quota, period = (int(word) for word in words)
        except ValueError:  # "max", or not there
            continue
        if quota > 0 and period > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def usable_cpus(root: Path = ROOT) -> int:
    """CPUs worth a thread each: those allowed, or fewer under a quota."""
    return worth_a_thread(allowed_cpus(), cpu_quota(root))


def worth_a_thread(allowed: int, quota: float | None) -> int:
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def total_memory(root: Path = ROOT) -> int:
    """The machine's memory in bytes."""
    return _meminfo("MemTotal", root)


def memory_limit(root: Path = ROOT) -> int | None:
    """The container's memory in bytes; None where it may use all of the machine's."""
    total = total_memory(root)
    return min((limit for limit, _ in _memory_groups(root) if limit < total), default=None)


def available_memory(root: Path = ROOT) -> int:
    """Bytes this process can still get: the machine's, page cache included, or fewer in a container."""
    available = _meminfo("MemAvailable", root)
    return max(0, min([available, *(limit - used for limit, used in _memory_groups(root))]))


def oom_kills(root: Path = ROOT) -> int:
    """Processes that the kernel has killed for want of memory: of this control group where it says so, of the
    whole machine otherwise. What counts is whether it grows."""
    groups = reversed(list(_control_groups("memory", root)))
    files = [group / name for group in groups for name in ("memory.events", "memory.oom_control")]
    for file in (*files, root / "proc/vmstat"):
        for line in (_text(file) or "").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _memory_groups(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use, in bytes, of each control group that has a limit."""
    for folder in _control_groups("memory", root):
        for limit_name, used_name, idle_name in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            try:
                limit, used = int(_text(folder / limit_name) or ""), int(_text(folder / used_name) or "")
            except ValueError:  # "max", or not there
                continue
            # What was read from files long ago counts as used, and is dropped when memory is wanted.
            statistics = (_text(folder / "memory.stat") or "").splitlines()
            idle = [int(line.split()[1]) for line in statistics if line.startswith(f"{idle_name} ")]
            yield limit, used - sum(idle)


def _control_groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of this process's control group and those above it, in both hierarchies."""
    places = {root / "sys/fs/cgroup": "/", root / "sys/fs/cgroup" / controller: "/"}
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            places[root / "sys/fs/cgroup"] = path
        elif controller in controllers.split(","):
            places[root / "sys/fs/cgroup" / controller] = path
    for mount, path in places.items():
        # A container sees its own group as the mount's root, whatever path the line gives.
        yield mount
        parts = [part for part in path.split("/") if part and part != ".."]
        for count in range(1, len(parts) + 1):
            yield mount.joinpath(*parts[:count])


def _meminfo(field: str, root: Path) -> int:
    for line in (_text(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first CPU's lines."""
    fields: dict[str, str] = {}
    for line in (_text(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
