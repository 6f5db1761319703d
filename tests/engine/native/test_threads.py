"""The threads of a model: they come and go with it, sleep when idle, and are nobody else's business."""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.engine.native.model import NativeModel, pack
from tests.engine.native.kernels import needs_kernels
from tests.engine.native.layers import head_alone, random_small

pytestmark = needs_kernels
TASKS = Path("/proc/self/task")
OUTPUTS, INPUTS = 640, 64  # enough rows of the matrix for every thread
LIMIT = 20.0  # seconds; it only turns a hang into a failure


def tasks() -> set[int]:
    """The threads of models, whatever others the process has."""
    found = set()
    for task in TASKS.iterdir():
        with suppress(OSError):  # it has just ended
            if (task / "comm").read_text().strip() == "penstock-step":
                found.add(int(task.name))
    return found


def ticks(tasks: set[int]) -> int:
    """The processor's time that they have used, in hundredths of a second."""
    stats = [(TASKS / str(task) / "stat").read_text().rpartition(")")[2].split() for task in tasks]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats)


def model_of(threads: int) -> NativeModel:
    return head_alone(pack(random_small(OUTPUTS, INPUTS, 8)), torch.ones(INPUTS), threads)


def hidden_rows() -> torch.Tensor:
    return torch.randn(4, INPUTS, generator=torch.Generator().manual_seed(0))


def ended(threads: set[int]) -> bool:
    """Once they are joined, the system may take a moment to forget them."""
    end = time.monotonic() + LIMIT
    while threads & tasks() and time.monotonic() < end:
        time.sleep(0.001)
    return not threads & tasks()


def test_threads_come_with_a_model_and_go_with_it() -> None:
    before = tasks()
    for _ in range(30):
        model = model_of(4)
        model.logits(hidden_rows())
        own = tasks() - before
        assert len(own) == 3  # the caller is the fourth
        del model
        assert ended(own)
    assert tasks() <= before


def test_a_model_that_was_never_opened_leaves_nothing_behind() -> None:
    before = tasks()
    opened = model_of(1)
    head = pack(random_small(OUTPUTS, INPUTS, 8))
    model = NativeModel(opened.config, head, [], torch.ones(INPUTS), head, 3)
    own = tasks() - before
    assert len(own) == 2
    gone = weakref.ref(model)
    del model
    assert gone() is None
    assert ended(own)


def test_idle_threads_use_no_time() -> None:
    others = tasks()
    model = model_of(4)
    model.logits(hidden_rows())
    own = tasks() - others
    time.sleep(0.05)  # a short wait is spent spinning
    before = ticks(own)
    time.sleep(0.3)
    assert ticks(own) - before <= 3  # ones that spin would use thirty each
    del model


def test_signals_go_to_the_threads_of_the_process_itself() -> None:
    before = tasks()
    model = model_of(3)
    for task in tasks() - before:
        status = (TASKS / str(task) / "status").read_text()
        blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM):
            assert blocked >> (number - 1) & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    del model


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_computes_alone_and_ends() -> None:
    model = model_of(3)
    hidden = hidden_rows()
    expected = model.logits(hidden).numpy().copy()
    target = np.zeros_like(expected)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing but the kernels: what else the process had is not safe to use here.
        try:
            native, state = vars(model)["_native"], vars(model)["_model"]
            native.penstock_logits(state, hidden.data_ptr(), len(hidden), target.ctypes.data)
            same = np.array_equal(target, expected)
            native.penstock_pool_close(state.pool)
            os.write(write, b"same" if same else b"different")
        finally:
            os._exit(0)
    os.close(write)
    watch = threading.Timer(LIMIT, os.kill, (child, signal.SIGKILL))
    watch.start()
    said = os.read(read, 100)
    os.close(read)
    os.waitpid(child, 0)
    watch.cancel()
    assert said == b"same"
    assert np.array_equal(model.logits(hidden).numpy(), expected)  # and the parent goes on
