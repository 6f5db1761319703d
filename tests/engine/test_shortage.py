"""What an engine says of itself to whoever watches it: its GPU, and that it ended for want of memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from penstock.engine.failures import OutOfDeviceMemory
from penstock.engine.run.sizing import gpu_uuid
from penstock.engine.worker import starved


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (OutOfDeviceMemory(), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
    ],
)
def test_want_of_memory_is_told_from_other_faults(error: Exception, short: bool) -> None:
    assert starved(error) == short


def test_a_gpu_is_called_as_the_driver_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {0: SimpleNamespace(uuid="0f3c-11"), 1: SimpleNamespace()}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: known[device.index])
    assert gpu_uuid(torch.device("cuda", 0)) == "GPU-0f3c-11"
    assert gpu_uuid(torch.device("cuda", 1)) == ""
    assert gpu_uuid(torch.device("cpu")) == ""
