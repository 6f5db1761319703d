"""From a configuration to models that answer: backends are built, watched, exchanged when it changes."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from prometheus_client.core import GaugeMetricFamily, Metric

from penstock.config import BackendConfig, GatewayConfig, ModelConfig, Settings, models_of
from penstock.errors import ConfigError
from penstock.gateway.backends import Backend
from penstock.gateway.backends.registry import SERVERS
from penstock.gateway.deployment import Deployment
from penstock.gateway.engine_plan import EnginePlan, KeptEngine
from penstock.gateway.local.backend import EngineBackend
from penstock.gateway.local.model import ServedModel
from penstock.observe.metrics import Metrics, WatchedEngine, engine_metrics
from penstock.text.tokenizer import Tokenizer

logger = logging.getLogger("penstock.gateway")


@dataclass(slots=True)
class _Row:
    """One entry of a model's backends, and the replicas that it has become."""

    config: BackendConfig
    names: list[str] = field(default_factory=list)


class Assembly:
    """Everything that answers. `share`: as one of so many processes that use the same servers."""

    def __init__(self, settings: Settings, metrics: Metrics, share: int = 1) -> None:
        self._settings = settings
        self._metrics = metrics
        self._share = share
        self._engines: list[tuple[EnginePlan, KeptEngine]] = []
        self._rows: dict[str, list[_Row]] = {}  # by model
        self._leaving: set[asyncio.Task[None]] = set()
        self.deployments: list[Deployment] = []
        metrics.watch(self._engine_metrics)
        metrics.watch(self._replica_metrics)

    async def build(
        self, engines: Sequence[tuple[EnginePlan, KeptEngine]], tokenizers: Mapping[str, Tokenizer]
    ) -> None:
        """Make all models of the configuration, with these engines, which have been started."""
        self._engines = list(engines)
        gateway = self._settings.gateway
        for model in models_of(self._settings):
            deployment = Deployment(model, gateway, self._served(model, tokenizers), self._share)
            self.deployments.append(deployment)
            self._rows[model.name] = []
            for config in model.backends:
                await self._add(deployment, config, gateway)

    async def apply(self, settings: Settings) -> GatewayConfig:
        """Serve a changed configuration, or raise ConfigError and go on with the old one.

        Models and backends that are the same in both are not touched; what leaves finishes what it has.
        """
        gateway = settings.gateway
        wanted = {model.name: model for model in models_of(settings)}
        self._check_engines(wanted)
        known = {deployment.name: deployment for deployment in self.deployments}
        built = {  # whatever cannot be built is found before anything is changed
            (name, number): self._server(wanted[name], config, gateway)
            for name, model in wanted.items()
            for number, config in enumerate(model.backends)
            if config.kind != "engine" and not self._has(name, config)
        }
        for name, model in wanted.items():
            deployment = known.get(name)
            if deployment is None:
                deployment = known[name] = Deployment(model, gateway, None, self._share)
                self._rows[name] = []
            else:
                deployment.configure(model, gateway)
            for row in [row for row in self._rows[name] if row.config not in model.backends]:
                self._rows[name].remove(row)
                self._let_go(deployment, row)
            for number, config in enumerate(model.backends):
                if (name, number) in built:
                    await self._enter(deployment, _Row(config), [built[name, number]])
        for name in [name for name in known if name not in wanted]:
            for row in self._rows.pop(name):
                self._let_go(known[name], row)
        self._settings = settings
        self.deployments = [known[name] for name in wanted]
        return gateway

    async def close(self) -> None:
        """Stop watching everybody. Engines are stopped by who started them."""
        await asyncio.gather(*self._leaving, return_exceptions=True)
        for deployment in self.deployments:
            for backend in deployment.backends():
                await backend.close()

    # ------------------------------------------------------------ backends

    async def _add(self, deployment: Deployment, config: BackendConfig, gateway: GatewayConfig) -> None:
        if config.kind == "engine":
            backends: list[Backend] = [
                self._engine(deployment, plan, engine)
                for plan, engine in self._engines
                if plan.model == deployment.name and plan.config == config
            ]
        else:
            backends = [self._server(deployment.config, config, gateway)]
        await self._enter(deployment, _Row(config), backends)

    async def _enter(self, deployment: Deployment, row: _Row, backends: Sequence[Backend]) -> None:
        self._rows[deployment.name].append(row)
        for backend in backends:
            await backend.start()
            deployment.dispatcher.add(backend, row.config.weight)
            row.names.append(backend.name)

    def _let_go(self, deployment: Deployment, row: _Row) -> None:
        for name in row.names:
            member = deployment.dispatcher.remove(name)
            if member is not None:
                close = partial(self._close, member.backend)
                if member.running:
                    member.when_idle = close
                else:
                    close()

    def _close(self, backend: Backend) -> None:
        task = asyncio.create_task(backend.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _engine(self, deployment: Deployment, plan: EnginePlan, engine: KeptEngine) -> Backend:
        assert deployment.served is not None, "a model with engines has a tokenizer"
        metrics = self._metrics.model(deployment.name)
        return EngineBackend(engine, deployment.served, metrics, plan.config.max_concurrent)

    def _server(self, model: ModelConfig, config: BackendConfig, gateway: GatewayConfig) -> Backend:
        if not config.name:
            assert config.url is not None, "a backend that is no engine has an address"
            config = dataclasses.replace(config, name=_address(config.url))
        return SERVERS[config.kind](model, config, gateway.health)

    def _has(self, model: str, config: BackendConfig) -> bool:
        return any(row.config == config for row in self._rows.get(model, ()))

    def _check_engines(self, wanted: Mapping[str, ModelConfig]) -> None:
        """Engines are started with the server: a change to them takes a new start."""
        before = {
            name: [row.config for row in rows if row.config.kind == "engine"]
            for name, rows in self._rows.items()
        }
        for name, model in wanted.items():
            after = [config for config in model.backends if config.kind == "engine"]
            if after != before.pop(name, []):
                raise ConfigError(
                    f"The engines of {name} cannot be changed while the server runs; restart it."
                )
        for name, engines in before.items():
            if engines:
                raise ConfigError(f"{name} has engines, which cannot be stopped while the server runs.")

    def _served(self, model: ModelConfig, tokenizers: Mapping[str, Tokenizer]) -> ServedModel | None:
        """How the model's engines read and write, if it has any."""
        engines = [(plan, engine) for plan, engine in self._engines if plan.model == model.name]
        if not engines:
            return None
        plan, engine = engines[0]
        tokenizer = tokenizers[model.name]
        tokenizer.check_vocabulary(engine.info.vocab_size)
        names = (model.name, *model.aliases)
        return ServedModel(names, tokenizer, engine.info, plan.settings.reasoning_parser)

    # ------------------------------------------------------------ what is measured

    def _engine_metrics(self) -> Iterator[Metric]:
        numbers: dict[str, int] = {}
        watched = []
        for plan, engine in self._engines:
            number = numbers[plan.model] = numbers.get(plan.model, -1) + 1
            watched.append(WatchedEngine(plan.model, str(number), engine.info, engine.stats))
        return engine_metrics(watched)

    def _replica_metrics(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily(
            "penstock_queue_requests", "Requests that wait for a replica.", labels=["model_name", "class"]
        )
        tokens = GaugeMetricFamily(
            "penstock_queue_tokens", "Tokens that these may take.", labels=["model_name"]
        )
        labels = ["model_name", "replica"]
        healthy = GaugeMetricFamily("penstock_replica_healthy", "Whether it gets requests.", labels=labels)
        running = GaugeMetricFamily("penstock_replica_requests", "Requests it has.", labels=labels)
        for deployment in self.deployments:
            name, dispatcher = deployment.name, deployment.dispatcher
            for service_class, count in dispatcher.queue.counts.items():
                waiting.add_metric([name, service_class], count)
            tokens.add_metric([name], dispatcher.queue.tokens)
            for member in dispatcher.members.values():
                healthy.add_metric([name, member.backend.name], float(member.healthy))
                running.add_metric([name, member.backend.name], member.replica.requests)
        yield from (waiting, tokens, healthy, running)


def _address(url: str) -> str:
    """A server's name where it was given none: where it is, without the path."""
    parts = urlsplit(url)
    return parts.netloc
