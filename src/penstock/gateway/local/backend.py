"""An engine of ours as a backend: text in front of it, tokens behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from penstock.engine.config import EngineInfo, Task
from penstock.engine.request import EngineStats
from penstock.errors import EngineUnavailableError, QueueFullError
from penstock.gateway.backends import BackendError
from penstock.gateway.balance import Load
from penstock.gateway.exchange import Exchange
from penstock.gateway.health import Health
from penstock.gateway.local import embed, generate
from penstock.gateway.local.model import ServedModel
from penstock.gateway.local.prepare import prepare_chat, prepare_completion
from penstock.gateway.local.tokens import TokenSource
from penstock.observe.engines import version_of
from penstock.observe.metrics import ModelMetrics

# What an engine may hold beyond the choices it computes at once: so many that a finished one is followed
# by the next without a gap, and so few that urgent requests are not stuck behind them.
STANDBY_SHARE: Final = 0.25

Prepare = Callable[[ServedModel, bytes], Any]
Answer = Callable[[ServedModel, TokenSource, ModelMetrics, Exchange, Any], Awaitable[None]]

# By operation: what the model must be able to do, how the body is read, how it is answered.
OPERATIONS: Final[dict[str, tuple[Task, Prepare, Answer]]] = {
    "createChatCompletion": ("generate", prepare_chat, generate.chat),
    "createCompletion": ("generate", prepare_completion, generate.completion),
    "createEmbedding": ("embed", embed.prepare_embeddings, embed.embeddings),
    "rerank": ("score", embed.prepare_rerank, embed.rerank),
    "score": ("score", embed.prepare_score, embed.score),
}


class Engine(Protocol):
    """The engine's process, as its keeper sees it: it may be gone and come again."""

    @property
    def name(self) -> str: ...

    @property
    def client(self) -> TokenSource | None:
        """None while there is no engine that could take requests."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def stats(self) -> EngineStats: ...

    @property
    def health(self) -> Health: ...

    @property
    def deaths(self) -> Mapping[str, int]: ...


class EngineBackend:
    vision = False
    prioritizes = True
    restarts = True

    def __init__(
        self,
        engine: Engine,
        model: ServedModel,
        metrics: ModelMetrics,
        max_concurrent: int | None = None,
        revision: str = "",
        template_sha256: str = "",
    ) -> None:
        self._engine = engine
        self._model = model
        self._metrics = metrics
        self._max_concurrent = max_concurrent
        self._revision, self._template_sha256 = revision, template_sha256

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def operations(self) -> frozenset[str]:
        tasks = self._model.tasks
        return frozenset(name for name, (task, _, _) in OPERATIONS.items() if task in tasks)

    @property
    def upstream_model(self) -> str:
        return self._model.names[0]

    @property
    def health(self) -> Health:
        return self._engine.health

    @property
    def capacity(self) -> int:
        if self._max_concurrent is not None:
            return self._max_concurrent
        running = self._model.max_running
        return running + max(1, int(running * STANDBY_SHARE))

    @property
    def stats(self) -> EngineStats:
        """Its own account of itself."""
        return self._engine.stats

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    @property
    def deaths(self) -> Mapping[str, int]:
        """By cause."""
        return self._engine.deaths

    @property
    def idle_kv_bytes(self) -> int:
        """Memory that it has set aside for the KV of requests, and that none holds."""
        return round(self.info.kv_cache_bytes * (1 - self.stats.kv_usage))

    @property
    def version(self) -> tuple[str, ...]:
        """What it has loaded; replicas that differ here answer differently."""
        return version_of(self.info, self._revision, self._template_sha256)

    def load(self) -> Load | None:
        stats = self._engine.stats
        return Load(stats.running, stats.waiting, stats.kv_usage)

    async def start(self) -> None:
        """Its keeper has started it."""

    async def close(self) -> None:
        """Its keeper stops it."""

    async def answer(self, exchange: Exchange) -> None:
        source = self._engine.client
        if source is None:
            raise BackendError("The engine is being started again; try again soon.", status=503)
        _, _, answer = OPERATIONS[exchange.operation.asks]
        try:
            await answer(self._model, source, self._metrics, exchange, exchange.prepared)
        except QueueFullError as error:
            if exchange.started:
                raise
            raise BackendError(str(error), status=429, retry_after=error.retry_after) from None
        except EngineUnavailableError as error:
            if exchange.started:
                raise
            raise BackendError(str(error), status=503, died=True) from None
