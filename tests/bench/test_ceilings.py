"""What the hardware can do at best, measured here, with and without torch."""

from __future__ import annotations

import pytest

from penstock.bench import ceilings
from penstock.bench.ceilings import Ceilings, measure
from penstock.machine import usable_cpus


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures are of no interest here, only that they are measured."""
    monkeypatch.setattr(ceilings, "LARGE_READ", {"cpu": 2**22})
    monkeypatch.setattr(ceilings, "CACHE_READ", {"cpu": 2**20})
    monkeypatch.setattr(ceilings, "SHAPE", {"cpu": (32, 64, 64)})


def check(found: Ceilings) -> None:
    assert found.threads == 1
    # Any machine this runs on reads faster than a disk and multiplies faster than a calculator.
    assert 0.01 < found.memory_read_gb_per_second < 100_000
    assert found.cache_read_gb_per_second is not None
    assert 0.001 < found.fp32_gflop_per_second < 1e9


def test_ceilings_are_measured_on_this_machine() -> None:
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    found = measure("cpu", threads=1, seconds=0.01)
    check(found)
    assert found.measured_with == "torch"
    assert found.matmul("float32") == found.fp32_gflop_per_second
    assert found.matmul("int8") == found.int8_gop_per_second
    assert found.int8_gop_per_second is not None
    assert torch.get_num_threads() == threads


def test_all_usable_cores_are_measured_though_torch_has_fewer_threads() -> None:
    torch = pytest.importorskip("torch")
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert measure("cpu", seconds=0.01).threads == usable_cpus()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(former)


def test_ceilings_are_measured_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = measure("cpu", threads=1, seconds=0.01)
    check(found)
    assert found.measured_with == "numpy"
    assert found.matmul("int8") is None
