"""Memory is of a process with all its children, and its peak is not missed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.bench.memory import MemorySampler, tree_memory
from penstock.bench.processes import process_age, process_tree

MEGABYTE = 2**20
CHILD = f"import sys; x = bytearray({64 * MEGABYTE}); print(flush=True); sys.stdin.read()"
PARENT = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=0).wait()"


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has said that it is ready, until the block ends."""
    command = [sys.executable, "-S", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        assert process.stdin is not None
        process.stdin.close()


def test_the_memory_of_children_counts() -> None:
    with running("-c", PARENT, CHILD) as process:
        assert len(process_tree(process.pid)) == 2
        size = tree_memory(process.pid)
    assert size is not None
    assert 64 * MEGABYTE < size < 128 * MEGABYTE


def test_a_process_that_is_no_more_has_no_memory() -> None:
    with running("-c", CHILD) as process:
        pass
    assert process_tree(process.pid) == []
    assert tree_memory(process.pid) is None
    with MemorySampler(process.pid) as sampler:
        pass
    assert sampler.peak is None


def test_the_peak_is_the_most_that_was_seen() -> None:
    before = tree_memory(os.getpid())
    with running("-c", CHILD), MemorySampler(os.getpid()) as sampler:
        pass
    assert before is not None
    assert sampler.peak is not None
    assert sampler.peak > 64 * MEGABYTE


def test_without_a_process_nothing_is_sampled() -> None:
    with MemorySampler(None) as sampler:
        pass
    assert sampler.peak is None


def test_a_process_is_as_old_as_its_start() -> None:
    born_before = process_age(os.getpid())
    with running("-c", CHILD) as process:
        assert 0 <= process_age(process.pid) < process_age(os.getpid())
    assert process_age(os.getpid()) >= born_before
