"""What NVIDIA's driver says of the GPUs, asked by a thread of its own; nothing at all where there is none.

The driver's calls can take milliseconds, and its events are waited for: neither may hold up requests.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from penstock.observe.catalogue import Families
from penstock.observe.instruments import Family, copy
from penstock.observe.snapshot import GpuNow

logger = logging.getLogger("penstock.observe")

EVERY_SECONDS: Final = 2.0
# Bits of the driver's "clocks event reasons" by which clocks are held down; others are wishes, or idleness.
THROTTLES: Final = {
    "power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "power_brake": 0x80,
}
_GPM: Final = {"sm_active": 2, "tensor_active": 5, "bandwidth": 10}  # the driver's numbers for them


@dataclass(frozen=True, slots=True)
class GpuReading:
    """None: this GPU, or its driver, does not say. Shares are from 0 to 1."""

    index: int
    name: str
    memory_used: int | None = None  # bytes
    memory_total: int | None = None
    utilisation: float | None = None
    temperature: float | None = None  # degrees Celsius
    power: float | None = None  # watts
    power_limit: float | None = None
    energy: float | None = None  # joules
    clock: float | None = None  # hertz
    throttles: int | None = None  # bits
    sm_active: float | None = None
    tensor_active: float | None = None
    bandwidth: float | None = None

    def now(self) -> GpuNow:
        return GpuNow(
            index=self.index,
            name=self.name,
            memory_used=self.memory_used or 0,
            memory_total=self.memory_total or 0,
            utilisation=self.utilisation,
            temperature=self.temperature,
            power=self.power,
        )


class _Gpu:
    def __init__(self, library: Any, index: int) -> None:
        self._library = library
        self.index = index
        self.handle = library.nvmlDeviceGetHandleByIndex(index)
        name = library.nvmlDeviceGetName(self.handle)
        self.name = name.decode() if isinstance(name, bytes) else str(name)
        self.uuid = self._said(lambda: _uuid(library, index)) or ""
        self._sample: Any = None  # of the profiling counters, the one before
        self._profiles = bool(
            self._said(lambda: library.nvmlGpmQueryDeviceSupport(self.handle).isSupportedDevice)
        )

    def read(self) -> GpuReading:
        library, handle, said = self._library, self.handle, self._said
        memory = said(lambda: library.nvmlDeviceGetMemoryInfo(handle))
        busy = said(lambda: library.nvmlDeviceGetUtilizationRates(handle).gpu)
        return GpuReading(
            index=self.index,
            name=self.name,
            memory_used=None if memory is None else memory.used,
            memory_total=None if memory is None else memory.total,
            utilisation=_times(busy, 0.01),
            temperature=said(lambda: library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU)),
            power=_times(said(lambda: library.nvmlDeviceGetPowerUsage(handle)), 0.001),
            power_limit=_times(said(lambda: library.nvmlDeviceGetEnforcedPowerLimit(handle)), 0.001),
            energy=_times(said(lambda: library.nvmlDeviceGetTotalEnergyConsumption(handle)), 0.001),
            clock=_times(said(lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM)), 1e6),
            throttles=said(lambda: library.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            **(said(self._profile) or {}),
        )

    def _profile(self) -> dict[str, float]:
        """Of the time since the last reading; the first one has none before it."""
        library = self._library
        if not self._profiles:
            return {}
        sample = library.nvmlGpmSampleAlloc()
        try:
            library.nvmlGpmSampleGet(self.handle, sample)
        except library.NVMLError:
            library.nvmlGpmSampleFree(sample)
            raise
        before, self._sample = self._sample, sample
        if before is None:
            return {}
        try:
            asked = library.c_nvmlGpmMetricsGet_t()
            asked.version = library.NVML_GPM_METRICS_GET_VERSION
            asked.numMetrics = len(_GPM)
            asked.sample1, asked.sample2 = before, sample
            for place, number in enumerate(_GPM.values()):
                asked.metrics[place].metricId = number
            library.nvmlGpmMetricsGet(asked)
            return {
                name: asked.metrics[place].value / 100
                for place, name in enumerate(_GPM)
                if asked.metrics[place].nvmlReturn == 0
            }
        finally:
            library.nvmlGpmSampleFree(before)

    def close(self) -> None:
        """Give back what the driver holds for it."""
        sample, self._sample = self._sample, None
        if sample is not None:
            self._said(lambda: self._library.nvmlGpmSampleFree(sample))

    def _said(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except self._library.NVMLError:
            return None


class GpuWatch:
    """The latest reading of each GPU, and the errors that the driver has reported since the start."""

    def __init__(self, library: Any, indices: list[int]) -> None:
        self._library = library
        self._gpus = [_Gpu(library, index) for index in indices]
        self._events = self._subscribed()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpus", daemon=True)
        self.readings: list[GpuReading] = []
        self.xids: Counter[tuple[int, int]] = Counter()  # by index and number

    @classmethod
    def open(cls, library: Any = None, environ: Mapping[str, str] = os.environ) -> GpuWatch | None:
        """None without a GPU, its driver or the package that asks it."""
        if library is None:
            try:
                library = import_module("pynvml")
            except ImportError:
                return None
        try:
            library.nvmlInit()
        except library.NVMLError:
            return None
        with contextlib.suppress(library.NVMLError):
            indices = list(_visible(library, environ))
            if indices:
                return cls(library, indices)
        with contextlib.suppress(library.NVMLError):
            library.nvmlShutdown()
        return None

    def start(self) -> None:
        self._thread.start()

    def index_of(self, uuid: str) -> int | None:
        """The GPU of this UUID; without one, the only GPU there is. None: not known."""
        found = [gpu.index for gpu in self._gpus if not uuid or gpu.uuid == uuid]
        return found[0] if len(found) == 1 else None

    def close(self) -> None:
        """The thread ends by itself within a second."""
        self._stop.set()

    def look(self, families: Families) -> None:
        """Write the latest readings into their families."""
        readings = self.readings
        told: tuple[tuple[Family[Any], str], ...] = (
            (families.gpu_memory_used, "memory_used"),
            (families.gpu_memory_total, "memory_total"),
            (families.gpu_utilisation, "utilisation"),
            (families.gpu_sm_active, "sm_active"),
            (families.gpu_tensor_active, "tensor_active"),
            (families.gpu_bandwidth, "bandwidth"),
            (families.gpu_temperature, "temperature"),
            (families.gpu_power, "power"),
            (families.gpu_power_limit, "power_limit"),
            (families.gpu_energy, "energy"),
            (families.gpu_clock, "clock"),
        )
        for family, name in told:
            values = ((_labels(each), getattr(each, name)) for each in readings)
            copy(family, ((labels, value) for labels, value in values if value is not None))
        copy(
            families.gpu_throttled,
            (
                ((*_labels(each), reason), float(bool(each.throttles & bit)))
                for each in readings
                if each.throttles is not None
                for reason, bit in THROTTLES.items()
            ),
        )
        names = {gpu.index: gpu.name for gpu in self._gpus}
        copy(
            families.gpu_xid,
            (((str(at), names.get(at, ""), str(xid)), n) for (at, xid), n in list(self.xids.items())),
        )

    def _run(self) -> None:
        due = 0.0
        try:
            while not self._stop.is_set():
                if time.monotonic() >= due:
                    due = time.monotonic() + EVERY_SECONDS
                    self.readings = [gpu.read() for gpu in self._gpus]
                self._hear(milliseconds=int(min(EVERY_SECONDS, 1.0) * 1000))
        except Exception:
            logger.exception("The GPUs are not read any more.")
            self.readings = []
        finally:
            for gpu in self._gpus:
                gpu.close()
            with contextlib.suppress(self._library.NVMLError):
                self._library.nvmlShutdown()

    def _hear(self, milliseconds: int) -> None:
        """Wait for an event that long."""
        library = self._library
        if self._events is None:
            self._stop.wait(milliseconds / 1000)
            return
        try:
            event = library.nvmlEventSetWait_v2(self._events, milliseconds)
            at = library.nvmlDeviceGetIndex(event.device)
        except library.NVMLError as error:
            if not isinstance(error, library.NVMLError_Timeout):
                self._stop.wait(milliseconds / 1000)
            return
        self.xids[at, event.eventData] += 1
        logger.error("The driver reports the error XID %d of GPU %d.", event.eventData, at)

    def _subscribed(self) -> Any:
        """To critical errors of all of them; None where that is not possible."""
        library = self._library
        try:
            events = library.nvmlEventSetCreate()
            for gpu in self._gpus:
                library.nvmlDeviceRegisterEvents(gpu.handle, library.nvmlEventTypeXidCriticalError, events)
        except library.NVMLError:
            return None
        return events


def _visible(library: Any, environ: Mapping[str, str]) -> Iterator[int]:
    """Those that CUDA programs started here would see. CUDA's numbers are the driver's where all GPUs are
    alike."""
    count = library.nvmlDeviceGetCount()
    asked = environ.get("CUDA_VISIBLE_DEVICES")
    if asked is None or asked.startswith("MIG-"):
        yield from range(count)
        return
    for name in asked.split(","):
        name = name.strip()
        if name.isdigit() and int(name) < count:
            yield int(name)
        elif name.startswith("GPU-"):
            yield from (index for index in range(count) if _uuid(library, index).startswith(name))
        else:
            return  # as CUDA does: what stands behind an unknown one is not seen


def _uuid(library: Any, index: int) -> str:
    uuid = library.nvmlDeviceGetUUID(library.nvmlDeviceGetHandleByIndex(index))
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)


def _labels(reading: GpuReading) -> tuple[str, str]:
    return str(reading.index), reading.name


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
