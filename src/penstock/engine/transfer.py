"""Between host and device, without waiting for the device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def current(device: torch.device) -> AbstractContextManager[None]:
    """Make a GPU the one that kernels, streams and graphs are for; the CPU needs nothing of the kind."""
    return nullcontext() if device.type == "cpu" else torch.cuda.device(device)


def finish(device: torch.device) -> None:
    """Wait for all that the device was given."""
    if device.type != "cpu":
        torch.cuda.synchronize(device)


def upload(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Numbers of the host on the device, without waiting for it."""
    found = torch.from_numpy(np.ascontiguousarray(values))
    return found if device.type == "cpu" else found.pin_memory().to(device, non_blocking=True)


def send(values: npt.NDArray[Any], target: Tensor) -> None:
    """Put numbers of the host into a tensor of the device, without waiting for it."""
    found = torch.from_numpy(values)
    target.copy_(found if target.device.type == "cpu" else found.pin_memory(), non_blocking=True)


def write_rows(target: Tensor, pieces: list[tuple[int, int, list[int]]]) -> None:
    """Each piece: a row of `target`, the first column, and int32 values from there on."""
    if target.device.type == "cpu":
        for row, start, values in pieces:
            target[row, start : start + len(values)] = torch.tensor(values, dtype=torch.int32)
        return
    # One copy and one kernel for all of them.
    stride = target.stride(0)
    places = np.concatenate(
        [np.arange(row * stride + start, row * stride + start + len(v)) for row, start, v in pieces]
    )
    numbers = np.concatenate([np.array(values, dtype=np.int64) for *_, values in pieces])
    both = upload(np.stack((places, numbers)), target.device)
    target.view(-1).scatter_(0, both[0], both[1].to(torch.int32))


def download(values: Tensor) -> Callable[[], list[Any]]:
    """Have numbers sent to the host; what is returned waits for them. Rows are lists in a list."""
    if values.device.type == "cpu":
        found: list[Any] = values.tolist()
        return lambda: found
    fetched = fetch(values)

    def wait() -> list[Any]:
        sent: list[Any] = fetched().tolist()
        return sent

    return wait


def fetch(values: Tensor) -> Callable[[], Tensor]:
    """The same as a tensor; on the CPU it is the one that was given."""
    if values.device.type == "cpu":
        return lambda: values
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    host.copy_(values, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()

    def wait() -> Tensor:
        arrived.synchronize()
        return host

    return wait
