"""What a process may use, on machines and in containers built from the files they would show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock import machine

GIB = 1 << 30


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """16 GiB of memory, 12 of them available, no container."""
    put(tmp_path, "proc/meminfo", f"MemTotal: {16 << 20} kB\nMemFree: 1 kB\nMemAvailable: {12 << 20} kB\n")
    put(
        tmp_path,
        "proc/cpuinfo",
        "processor: 0\nmodel name\t: Some CPU\nflags\t: avx2 avx512f\n\nprocessor: 1\nflags\t: none\n",
    )
    put(tmp_path, "proc/self/cgroup", "0::/\n")
    return tmp_path


def test_without_a_container_everything_is_the_machines(bare: Path) -> None:
    assert machine.total_memory(bare) == 16 * GIB
    assert machine.available_memory(bare) == 12 * GIB
    assert machine.memory_limit(bare) is None
    assert machine.cpu_quota(bare) is None
    assert machine.usable_cpus(bare) == machine.allowed_cpus() == len(os.sched_getaffinity(0))


def test_the_processor_is_named_by_its_first_cpu(bare: Path) -> None:
    assert machine.processor(bare) == "Some CPU"
    assert machine.cpu_flags(bare) == {"avx2", "avx512f"}


def test_arm_calls_its_flags_features(bare: Path) -> None:
    put(bare, "proc/cpuinfo", "processor : 0\nFeatures : asimd asimddp i8mm\n")
    assert machine.cpu_flags(bare) == {"asimd", "asimddp", "i8mm"}
    assert machine.processor(bare)


def test_a_containers_limit_and_use_count(bare: Path) -> None:
    put(bare, "sys/fs/cgroup/memory.max", str(4 * GIB))
    put(bare, "sys/fs/cgroup/memory.current", str(3 * GIB))
    assert machine.memory_limit(bare) == 4 * GIB
    assert machine.available_memory(bare) == GIB


def test_files_read_long_ago_are_not_use(bare: Path) -> None:
    put(bare, "sys/fs/cgroup/memory.max", str(4 * GIB))
    put(bare, "sys/fs/cgroup/memory.current", str(3 * GIB))
    put(bare, "sys/fs/cgroup/memory.stat", f"anon {GIB}\ninactive_file {2 * GIB}\nactive_file 0\n")
    assert machine.available_memory(bare) == 3 * GIB


def test_the_narrowest_group_above_the_process_counts(bare: Path) -> None:
    put(bare, "proc/self/cgroup", "0::/outer/inner\n")
    put(bare, "sys/fs/cgroup/outer/memory.max", str(2 * GIB))
    put(bare, "sys/fs/cgroup/outer/memory.current", "0")
    put(bare, "sys/fs/cgroup/outer/inner/memory.max", "max")
    put(bare, "sys/fs/cgroup/outer/inner/memory.current", "0")
    assert machine.memory_limit(bare) == 2 * GIB


def test_the_first_version_of_control_groups(bare: Path) -> None:
    put(bare, "proc/self/cgroup", "4:cpu,cpuacct:/\n3:memory:/job\n")
    put(bare, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")  # its "no limit"
    put(bare, "sys/fs/cgroup/memory/memory.usage_in_bytes", "0")
    assert machine.memory_limit(bare) is None
    put(bare, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", str(GIB))
    put(bare, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "0")
    put(bare, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000")
    put(bare, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert machine.memory_limit(bare) == GIB
    assert machine.available_memory(bare) == GIB
    assert machine.cpu_quota(bare) == 1.5


def test_a_quota_makes_fewer_cpus_usable(bare: Path) -> None:
    put(bare, "sys/fs/cgroup/cpu.max", "50000 100000")
    assert machine.cpu_quota(bare) == 0.5
    assert machine.usable_cpus(bare) == 1
    put(bare, "sys/fs/cgroup/cpu.max", "max 100000")
    assert machine.cpu_quota(bare) is None


def test_a_use_above_the_limit_leaves_nothing(bare: Path) -> None:
    put(bare, "sys/fs/cgroup/memory.max", str(GIB))
    put(bare, "sys/fs/cgroup/memory.current", str(2 * GIB))
    assert machine.available_memory(bare) == 0


def test_kills_for_want_of_memory_are_those_of_the_own_group_or_of_the_machine(bare: Path) -> None:
    assert machine.oom_kills(bare) == 0, "nobody says"
    put(bare, "proc/vmstat", "nr_free_pages 12\noom_kill 7\n")
    assert machine.oom_kills(bare) == 7
    put(bare, "proc/self/cgroup", "0::/outer/inner\n")
    put(bare, "sys/fs/cgroup/outer/memory.events", "oom 9\noom_kill 5\n")
    assert machine.oom_kills(bare) == 5
    put(bare, "sys/fs/cgroup/outer/inner/memory.events", "low 1\noom 4\noom_kill 2\noom_group_kill 0\n")
    assert machine.oom_kills(bare) == 2


def test_this_machine_can_be_looked_at() -> None:
    assert machine.processor()
    assert machine.cpu_flags()
    assert 0 < machine.available_memory() <= machine.total_memory()
