"""From a configuration to models that answer: backends are built, watched, exchanged when it changes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from penstock.config import BackendConfig, DiscoverConfig, GatewayConfig, ModelConfig, Settings, models_of
from penstock.errors import PenstockError
from penstock.gateway.backends import Backend
from penstock.gateway.backends.registry import SERVERS
from penstock.gateway.changing import check_change, check_servers
from penstock.gateway.deployment import Deployment
from penstock.gateway.discovery import Addresses, SharedRegistry, open_source
from penstock.gateway.engine_plan import EnginePlan
from penstock.gateway.engines import KeptEngine
from penstock.gateway.local.backend import EngineBackend
from penstock.gateway.local.model import ServedModel
from penstock.gateway.replica_metrics import tell_replicas
from penstock.observe.engines import WatchedEngine, gpu_of, tell_engines, version_of
from penstock.observe.metrics import Metrics
from penstock.text.tokenizer import Tokenizer

logger = logging.getLogger("penstock.gateway")


# Before a source that failed in a way of which it knows nothing is opened anew.
FOLLOW_AGAIN_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Row:
    """One entry of a model's backends, and the replicas that it has become."""

    config: BackendConfig
    names: list[str] = field(default_factory=list)
    following: asyncio.Task[None] | None = None  # whatever says where its servers are


class Assembly:
    """Everything that answers. `share`: as one of so many processes that use the same servers, of which
    only one tells of the engines that they share."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        registry: SharedRegistry,
        share: int = 1,
        tells_of_engines: bool = True,
    ) -> None:
        self._settings = settings
        self.registry = registry
        self._metrics = metrics
        self._share = share
        self._engines: list[tuple[EnginePlan, KeptEngine]] = []
        self._rows: dict[str, list[_Row]] = {}  # by model
        self._templates: dict[str, str] = {}  # SHA-256 of the chat template, by model
        self._leaving: set[asyncio.Task[None]] = set()
        self.deployments: list[Deployment] = []
        self._tells_of_engines = tells_of_engines
        if tells_of_engines:
            metrics.watch(self._tell_engines)
            metrics.watch_gpus(settings.gateway.metrics.gpu)
        metrics.watch(self._tell_replicas)

    async def build(
        self, engines: Sequence[tuple[EnginePlan, KeptEngine]], tokenizers: Mapping[str, Tokenizer]
    ) -> None:
        """Make all models of the configuration, with these engines, which have been started."""
        self._engines = list(engines)
        check_servers(self._settings)
        gateway = self._settings.gateway
        for model in models_of(self._settings):
            waiting = [plan.settings.max_waiting for plan, _ in self._engines if plan.model == model.name]
            served = self._served(model, tokenizers)
            deployment = Deployment(model, gateway, served, self._share, sum(waiting) or None)
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
        check_change(self._settings, settings)
        known = {deployment.name: deployment for deployment in self.deployments}
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
            for config in model.backends:
                if config.kind != "engine" and not self._has(name, config):
                    await self._add(deployment, config, gateway)
        for name in [name for name in known if name not in wanted]:
            for row in self._rows.pop(name):
                self._let_go(known[name], row)
            known[name].dispatcher.tick()  # the last: who waits is told that nobody will answer
        if self._tells_of_engines and gateway.metrics.gpu != self._settings.gateway.metrics.gpu:
            await asyncio.to_thread(self._metrics.watch_gpus, gateway.metrics.gpu)
        self._settings = settings
        self.deployments = [known[name] for name in wanted]
        return gateway

    async def close(self) -> None:
        """Stop watching everybody. Engines are stopped by who started them."""
        for row in [row for rows in self._rows.values() for row in rows]:
            if row.following is not None:
                await _stopped(row.following)
        await asyncio.gather(*self._leaving, return_exceptions=True)
        if self._metrics.gpus is not None:
            self._metrics.gpus.close()
        for deployment in self.deployments:
            for backend in deployment.backends():
                await backend.close()

    # ------------------------------------------------------------ backends

    async def _add(self, deployment: Deployment, config: BackendConfig, gateway: GatewayConfig) -> None:
        row = _Row(config)
        self._rows[deployment.name].append(row)
        if config.kind == "engine":
            for plan, engine in self._engines:
                if plan.model == deployment.name and plan.config == config:
                    await self._enter(deployment, row, self._engine(deployment, plan, engine))
        elif config.discover is not None:
            row.following = asyncio.create_task(self._follow(deployment, row, config.discover))
        else:
            server = SERVERS[config.kind](deployment.config, config, gateway.health)
            await self._enter(deployment, row, server)

    async def _follow(self, deployment: Deployment, row: _Row, discover: DiscoverConfig) -> None:
        """Add and remove servers as their source says, for as long as the backend is there."""
        group = group_of(deployment.name, row.config.name)
        refused: set[str] = set()
        while True:
            try:
                async for addresses in open_source(discover, self.registry, group).watch():
                    await self._meet(deployment, row, addresses, refused)
            except Exception:
                logger.exception(
                    "%s: the servers of %s cannot be followed.", deployment.name, row.config.name
                )
            await asyncio.sleep(FOLLOW_AGAIN_SECONDS)

    async def _meet(self, deployment: Deployment, row: _Row, addresses: Addresses, refused: set[str]) -> None:
        """Have these servers and no others. `refused`: those of them that have been found to be unusable."""
        # Host, port and path: two models of one machine may differ in the path alone.
        found = {f"{row.config.name}/{url.partition('://')[2]}": url for url in addresses}
        refused.intersection_update(found)
        for name in [name for name in row.names if name not in found]:
            logger.info("%s: the server %s has left.", deployment.name, name)
            self._leave(deployment, row, name)
        for name in [name for name in found if name not in row.names]:
            config = dataclasses.replace(row.config, name=name, url=found[name], discover=None)
            health = self._settings.gateway.health
            try:
                server = SERVERS[config.kind](deployment.config, config, health)
            except PenstockError as error:
                if name not in refused:
                    refused.add(name)
                    logger.warning("%s: the server %s cannot be used. %s", deployment.name, name, error)
                continue
            logger.info("%s: the server %s has come.", deployment.name, name)
            await self._enter(deployment, row, server)

    async def _enter(self, deployment: Deployment, row: _Row, backend: Backend) -> None:
        await backend.start()
        deployment.dispatcher.add(backend, row.config.weight)
        row.names.append(backend.name)

    def _leave(self, deployment: Deployment, row: _Row, name: str) -> None:
        row.names.remove(name)
        member = deployment.dispatcher.remove(name)
        if member is not None:
            if member.running:
                member.when_idle = partial(self._close, member.backend)
            else:
                self._close(member.backend)

    def _let_go(self, deployment: Deployment, row: _Row) -> None:
        if row.following is not None:
            row.following.cancel()  # at once: it must find nobody any more
            self._finish(_stopped(row.following))
        for name in list(row.names):
            self._leave(deployment, row, name)

    def _close(self, backend: Backend) -> None:
        self._finish(backend.close())

    def _finish(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _engine(self, deployment: Deployment, plan: EnginePlan, engine: KeptEngine) -> Backend:
        assert deployment.served is not None, "a model with engines has a tokenizer"
        metrics = self._metrics.model(deployment.name)
        template = self._templates.get(plan.model, "")
        return EngineBackend(
            engine, deployment.served, metrics, plan.config.max_concurrent, plan.files.revision, template
        )

    def _has(self, model: str, config: BackendConfig) -> bool:
        return any(row.config == config for row in self._rows.get(model, ()))

    def _served(self, model: ModelConfig, tokenizers: Mapping[str, Tokenizer]) -> ServedModel | None:
        """How the model's engines read and write, if it has any."""
        engines = [(plan, engine) for plan, engine in self._engines if plan.model == model.name]
        if not engines:
            return None
        plan, engine = engines[0]
        tokenizer = tokenizers[model.name]
        template = tokenizer.chat_template or ""
        self._templates[model.name] = hashlib.sha256(template.encode()).hexdigest() if template else ""
        tokenizer.check_vocabulary(engine.info.vocab_size)
        names = (model.name, *model.aliases)
        return ServedModel(names, tokenizer, engine.info, plan.settings.reasoning_parser)

    # ------------------------------------------------------------ what is measured

    def _tell_engines(self) -> None:
        numbers: dict[str, int] = {}
        watched = []
        for plan, engine in self._engines:
            number = numbers[plan.model] = numbers.get(plan.model, -1) + 1
            # Where this process has only just come to an engine of many, 0 would be a fall.
            told = self._share == 1 or engine.stats.blocks_total > 0
            watched.append(
                WatchedEngine(
                    plan.model,
                    str(number),
                    engine.info,
                    engine.stats,
                    engine.restarts,
                    version_of(engine.info, plan.files.revision, self._templates.get(plan.model, "")),
                    gpu_of(engine.info, self._metrics.gpus),
                    engine.deaths,
                    told,
                )
            )
        tell_engines(self._metrics.families, watched)

    def _tell_replicas(self) -> None:
        tell_replicas(self._metrics.families, self.deployments)


def group_of(model: str, backend: str) -> str:
    """What servers register for."""
    return f"{model}/{backend}"


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
