"""What a GPU says of itself becomes metrics; whatever it does not say is left out, without an error."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.observe.engines import gpu_of
from penstock.observe.gpu import GpuWatch
from penstock.observe.metrics import Metrics
from tests.engine.engines import INFO
from tests.observe.pages import samples


class NVMLError(Exception):
    pass


class NVMLError_Timeout(NVMLError):  # noqa: N801, N818 - as the library calls it
    pass


class Driver:
    """Stands in for `pynvml`: two GPUs, of which the second tells neither its power nor its bandwidth."""

    NVMLError = NVMLError
    NVMLError_Timeout = NVMLError_Timeout
    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1
    NVML_GPM_METRICS_GET_VERSION = 1
    nvmlEventTypeXidCriticalError = 8  # noqa: N815

    def __init__(self) -> None:
        self.xids: list[tuple[int, int]] = []
        self.samples = 0  # held and not given back
        self.down = False
        self.open = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlGpmQueryDeviceSupport(self, handle: int) -> Any:  # noqa: N802
        if handle == 1:
            raise NVMLError
        return SimpleNamespace(isSupportedDevice=1)

    def nvmlGpmSampleAlloc(self) -> object:  # noqa: N802
        self.samples += 1
        return object()

    def nvmlGpmSampleFree(self, sample: object) -> None:  # noqa: N802
        self.samples -= 1

    def c_nvmlGpmMetricsGet_t(self) -> Any:  # noqa: N802
        return SimpleNamespace(metrics=[SimpleNamespace() for _ in range(8)])

    def nvmlGpmMetricsGet(self, asked: Any) -> None:  # noqa: N802
        assert asked.sample1 is not asked.sample2
        for metric in asked.metrics[: asked.numMetrics]:
            metric.value = {2: 81.0, 5: 33.0, 10: 72.5}[metric.metricId]
            metric.nvmlReturn = 0

    def nvmlEventSetWait_v2(self, events: object, milliseconds: int) -> Any:  # noqa: N802
        if not self.xids:
            time.sleep(0.001)
            raise NVMLError_Timeout
        device, xid = self.xids.pop()
        return SimpleNamespace(device=device, eventData=xid)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        if handle == 1:
            raise NVMLError
        return 612_345

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answers: dict[str, Callable[..., Any]] = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetIndex": lambda handle: handle,
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}abc",
            "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=120 << 30, total=140 << 30),
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=97, memory=41),
            "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 5_000,
            "nvmlDeviceGetClockInfo": lambda handle, kind: 1980,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x4 if handle == 0 else 0x1,
            "nvmlGpmSampleGet": lambda handle, sample: sample,
            "nvmlEventSetCreate": object,
            "nvmlDeviceRegisterEvents": lambda handle, kinds, events: None,
        }
        return answers[name]


def watching(driver: Driver, monkeypatch: pytest.MonkeyPatch, **environ: str) -> tuple[GpuWatch, Metrics]:
    monkeypatch.setattr("penstock.observe.gpu.EVERY_SECONDS", 0.0)
    watch = GpuWatch.open(driver, environ)
    assert watch is not None
    metrics = Metrics()
    metrics.watch(lambda: watch.look(metrics.families))
    watch.start()
    return watch, metrics


def until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_gpu_says_how_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    watch, metrics = watching(driver, monkeypatch)
    until(lambda: bool(watch.readings) and watch.readings[0].bandwidth is not None)
    values = samples(metrics.render())
    first = {"gpu": "0", "name": "NVIDIA H200"}
    second = first | {"gpu": "1"}
    for name, value in {
        "penstock_gpu_memory_used_bytes": 120 << 30,
        "penstock_gpu_memory_total_bytes": 140 << 30,
        "penstock_gpu_utilisation_ratio": 0.97,
        "penstock_gpu_temperature_celsius": 61,
        "penstock_gpu_power_watts": pytest.approx(612.345),
        "penstock_gpu_power_limit_watts": 700,
        "penstock_gpu_energy_joules_total": 5,
        "penstock_gpu_sm_clock_hertz": 1.98e9,
        "penstock_gpu_sm_active_ratio": 0.81,
        "penstock_gpu_tensor_active_ratio": 0.33,
        "penstock_gpu_memory_bandwidth_ratio": 0.725,
    }.items():
        assert values.of(name, **first) == value, name
    assert values.of("penstock_gpu_throttled", **first, reason="power_cap") == 1
    assert values.of("penstock_gpu_throttled", **first, reason="hw_thermal") == 0
    assert values.of("penstock_gpu_temperature_celsius", **second) == 61
    assert values.of("penstock_gpu_throttled", **second, reason="power_cap") == 0, "idleness is no throttling"
    for name in ("penstock_gpu_power_watts", "penstock_gpu_memory_bandwidth_ratio"):
        assert values.of(name, **second) is None, "it does not say"
    watch.close()
    until(lambda: driver.open == 0)
    assert driver.samples == 0, "samples are given back"


def test_what_a_driver_gives_and_then_refuses_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Driver):
        refused = 0

        def nvmlGpmSampleGet(self, handle: int, sample: object) -> None:  # noqa: N802
            self.refused += 1
            raise NVMLError

    driver = Refusing()
    watch, _ = watching(driver, monkeypatch)
    until(lambda: driver.refused > 5)
    watch.close()
    until(lambda: driver.open == 0)
    assert driver.samples == 0
    assert watch.readings[0].memory_used, "the rest is read all the same"


def test_a_driver_that_fails_half_way_is_let_go() -> None:
    class Failing(Driver):
        def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
            raise NVMLError

    driver = Failing()
    assert GpuWatch.open(driver, {}) is None
    assert driver.open == 0


def test_gpus_are_looked_at_and_left_alone_as_the_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr("penstock.observe.gpu.import_module", lambda name: driver)
    metrics = Metrics()
    for wanted in (True, False, True, False):
        metrics.watch_gpus(wanted)
        if wanted:
            until(lambda: metrics.gpus is not None and bool(metrics.gpus.readings))
        found = samples(metrics.render()).of("penstock_gpu_memory_used_bytes", gpu="0")
        assert (found is not None) is wanted
    until(lambda: driver.open == 0)


def test_errors_of_the_driver_are_counted_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.xids = [(1, 79), (1, 79), (0, 31)]
    watch, metrics = watching(driver, monkeypatch)
    until(lambda: watch.xids.total() == 3 and bool(watch.readings))
    values = samples(metrics.render())
    assert values.of("penstock_gpu_xid_errors_total", gpu="1", xid="79") == 2
    assert values.of("penstock_gpu_xid_errors_total", gpu="0", xid="31") == 1
    watch.close()


@pytest.mark.parametrize(
    ("visible", "seen"),
    [("1", [1]), ("1,0", [1, 0]), ("GPU-1", [1]), ("", []), ("-1", []), ("0,7,1", [0]), ("MIG-x", [0, 1])],
)
def test_gpus_that_were_hidden_are_not_shown(visible: str, seen: list[int]) -> None:
    driver = Driver()
    watch = GpuWatch.open(driver, {"CUDA_VISIBLE_DEVICES": visible})
    if watch is None:
        assert not seen
        assert driver.open == 0
    else:
        assert [gpu.index for gpu in watch._gpus] == seen


@pytest.mark.parametrize(
    ("visible", "uuid", "index"),
    [
        ("0,1", "GPU-1abc", 1),
        ("1,0", "GPU-0abc", 0),  # whatever its number among those that are seen
        ("1", "GPU-1abc", 1),
        ("0,1", "GPU-elsewhere", None),
        ("0,1", "", None),
        ("1", "", 1),  # there is no other
    ],
)
def test_an_engine_is_found_on_its_gpu(visible: str, uuid: str, index: int | None) -> None:
    watch = GpuWatch.open(Driver(), {"CUDA_VISIBLE_DEVICES": visible})
    assert gpu_of(replace(INFO, device="cuda:0", gpu=uuid), watch) == index
    assert gpu_of(INFO, watch) is None, "it is on the CPU"
    assert gpu_of(replace(INFO, device="cuda:0", gpu=uuid), None) is None


def test_without_a_driver_there_is_nothing_and_no_error() -> None:
    class Absent(Driver):
        def nvmlInit(self) -> None:  # noqa: N802
            raise NVMLError

    assert GpuWatch.open(Absent(), {}) is None


@pytest.mark.gpu
def test_a_real_gpu_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynvml")
    monkeypatch.setattr("penstock.observe.gpu.EVERY_SECONDS", 0.2)
    watch = GpuWatch.open()
    if watch is None:
        pytest.skip("There is no GPU.")
    watch.start()
    until(lambda: bool(watch.readings))
    reading = watch.readings[0]
    assert reading.memory_total
    assert reading.memory_used is not None
    assert 0 < reading.memory_used <= reading.memory_total
    assert reading.temperature is None or 0 < reading.temperature < 120
    if watch._gpus[0]._profiles:
        until(lambda: watch.readings[0].bandwidth is not None)
        assert 0 <= (watch.readings[0].bandwidth or 0) <= 1
    watch.close()
