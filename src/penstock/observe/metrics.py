"""What one process measures: its instruments, fitted to the configuration, as a page for Prometheus."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, get_args

import msgspec

from penstock import __version__
from penstock.config.sections import SERVICE_CLASSES, GatewayConfig
from penstock.config.tiers import AUTO
from penstock.observe.catalogue import Families, Gpus, specs
from penstock.observe.gpu import GpuWatch
from penstock.observe.instruments import Counter, copy, rebound
from penstock.observe.labels import CappedNames
from penstock.observe.merge import part
from penstock.observe.objectives import Objective, Promises, bounds
from penstock.observe.page import pieces, text, unhurried
from penstock.observe.process import resident_bytes
from penstock.observe.record import Outcome

# vLLM's words for how a request ended.
Ending = Literal["stop", "length", "abort", "error"]


class ModelMetrics:
    """What the choices that engines of ours compute for one model are measured by."""

    def __init__(self, families: Families, model: str) -> None:
        self.time_to_first_token = families.time_to_first_token.labels(model)
        self.inter_token_latency = families.inter_token_latency.labels(model)
        self.time_per_output_token = families.time_per_output_token.labels(model)
        self.request_latency = families.request_latency.labels(model)
        self.queue_time = families.queue_time.labels(model)
        self.prefill_time = families.prefill_time.labels(model)
        self.decode_time = families.decode_time.labels(model)
        endings: tuple[Ending, ...] = ("stop", "length", "abort", "error")
        self.finished: dict[Ending, Counter] = {
            ending: families.finished.labels(model, ending) for ending in endings
        }


class Metrics:
    """Everything one process measures. `process`: its number among several, which agree on names by files in
    the folder `shared`."""

    def __init__(
        self, config: GatewayConfig | None = None, process: int = 0, shared: Path | None = None
    ) -> None:
        self.families = Families()
        self.tenants = CappedNames(0, shared and shared / "tenants.names")  # as labels
        self.codes = CappedNames(0, shared and shared / "codes.names")  # of errors, which others may invent
        self._run = f"{os.getpid()}.{time.time_ns()}"
        self._models: dict[str, ModelMetrics] = {}
        self._routes: dict[tuple[str, str, int], Counter] = {}
        self._watched: list[Callable[[], None]] = []
        self.gpus: GpuWatch | None = None
        self._told_of_gpus = False
        self._process = str(process)
        families = self.families
        families.build.labels(__version__, platform.python_version()).set(1)
        families.start_time.labels(self._process).set(time.time())
        self.watch(self._look_at_process)
        self.watch(self._look_at_gpus)
        self.configure(config or GatewayConfig())

    def configure(self, config: GatewayConfig, models: Iterable[str] = ()) -> None:
        """Measure by these promises and names from now on; `models`: those that are served."""
        self.models = frozenset({*models, AUTO} if config.tiers else models)
        families, limit = self.families, config.metrics.label_values
        self.promises = Promises(config)
        self._vllm_names = config.metrics.vllm_names
        self.tenants.configure(limit, [tenant.name for tenant in config.tenants])
        self.codes.configure(limit)
        promised = bounds(config)
        for family in families.all:
            extra = promised.get(family.spec.objective)
            if extra is not None:
                rebound(family, tuple(sorted({*family.spec.bounds, *extra})))
        self._tell_promises()
        self._begin_counting()

    def watch_gpus(self, wanted: bool) -> None:
        """From now on, if there are any; or no longer. To ask the driver for the first time takes a while."""
        before, gpus = self.gpus, GpuWatch.open() if wanted else None
        if gpus is not None:
            gpus.start()
        self.gpus = gpus
        if before is not None:
            before.close()

    def model(self, name: str) -> ModelMetrics:
        known = self._models.get(name)
        if known is None:
            known = self._models[name] = ModelMetrics(self.families, name)
        return known

    def answered(self, route: str, method: str, status: int) -> None:
        """Count one HTTP answer. `route` is the pattern that matched, never the client's path."""
        counter = self._routes.get((route, method, status))
        if counter is None:
            counter = self.families.http.labels(route, method, str(status))
            self._routes[route, method, status] = counter
        counter.inc()

    def watch(self, look: Callable[[], None]) -> None:
        """Have `look` write what it sees into the families whenever somebody asks for the page."""
        self._watched.append(look)

    def render(self) -> bytes:
        """The page, at once."""
        return text([line for piece in self._pieces() for line in piece])

    async def page(self) -> bytes:
        """The same, while everybody else goes on."""
        return await unhurried(self._pieces())

    async def part(self) -> bytes:
        """For who adds it up with those of other processes."""
        self._look()
        return msgspec.msgpack.encode(await part(self._run, self.families))

    def _look(self) -> None:
        for look in self._watched:
            look()

    def _pieces(self) -> Iterator[list[str]]:
        self._look()
        return pieces(self.families, vllm_names=self._vllm_names)

    def _tell_promises(self) -> None:
        families, promises = self.families, self.promises
        families.slo_bound.clear()
        for model in sorted(self.models - {AUTO}):
            promise = promises.of(model)
            for objective, bound in (*promise.bounds(), ("batch_ttft", promise.batch_ttft)):
                if bound is not None:
                    families.slo_bound.labels(model, objective).set(bound)
        copy(families.slo_target, (((name,), promises.target(name)) for name in promises.objectives()))

    def _begin_counting(self) -> None:
        """A count that begins with its first failure hides that failure: what rises is seen, not what is."""
        families = self.families
        for model in self.models:
            for objective in get_args(Objective):
                for verdict in ("good", "bad"):
                    families.judged.labels(model, objective, verdict)
            families.retries.labels(model)
            for service_class in SERVICE_CLASSES:
                for outcome in get_args(Outcome):
                    families.requests.labels(model, service_class, outcome)

    def _look_at_gpus(self) -> None:
        if self.gpus is not None:
            self.gpus.look(self.families)
            self._told_of_gpus = True
        elif self._told_of_gpus:
            self._told_of_gpus = False
            for name in specs(Gpus):
                getattr(self.families, name).clear()

    def _look_at_process(self) -> None:
        families, process = self.families, (self._process,)
        copy(families.cpu, [(process, time.process_time())])
        memory = resident_bytes()
        if memory is not None:
            copy(families.memory, [(process, memory)])
