"""The engines' accounts of themselves as metrics: read when somebody asks, not copied token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from penstock.engine.config import EngineInfo
from penstock.engine.request import EngineStats
from penstock.observe.catalogue import Families
from penstock.observe.instruments import copy


@dataclass(frozen=True, slots=True)
class WatchedEngine:
    """An engine's latest account of itself."""

    model: str
    number: str  # among the engines of its model
    info: EngineInfo
    stats: EngineStats
    restarts: int = 0
    revision: str = ""
    template_sha256: str = ""


# By the attribute of `Families`: the state now, and counters that only grow.
_READINGS: Final[dict[str, Callable[[WatchedEngine], float]]] = {
    "running": lambda engine: engine.stats.running,
    "engine_waiting": lambda engine: engine.stats.waiting,
    "kv_usage": lambda engine: engine.stats.kv_usage,
    "kv_waste": lambda engine: engine.stats.kv_waste,
    "prompt_tokens": lambda engine: engine.stats.prompt_tokens,
    "generated_tokens": lambda engine: engine.stats.generated_tokens,
    "prefix_queries": lambda engine: engine.stats.prefix_queries,
    "prefix_hits": lambda engine: engine.stats.prefix_hits,
    "preemptions": lambda engine: engine.stats.preemptions,
    "steps": lambda engine: engine.stats.steps,
    "failed_steps": lambda engine: engine.stats.failed_steps,
    "oom_steps": lambda engine: engine.stats.oom_steps,
    "read_bytes": lambda engine: engine.stats.steps * engine.info.weight_bytes,
    "restarts": lambda engine: engine.restarts,
}


def tell_engines(families: Families, engines: Iterable[WatchedEngine]) -> None:
    engines = list(engines)
    for name, read in _READINGS.items():
        copy(getattr(families, name), (((each.model, each.number), read(each)) for each in engines))
    copy(
        families.kv_blocks,
        (
            ((each.model, each.number, state), blocks)
            for each in engines
            for state, blocks in _blocks(each.stats)
        ),
    )
    copy(
        families.cache_config,
        (
            ((each.model, each.number, str(each.info.block_size), str(each.info.num_blocks)), 1.0)
            for each in engines
        ),
    )
    copy(
        families.kv_bytes,
        (((each.model, each.number, each.info.device), each.info.kv_cache_bytes) for each in engines),
    )
    copy(families.model_info, ((_identity(each), 1.0) for each in engines))


def _blocks(stats: EngineStats) -> tuple[tuple[str, int], ...]:
    held = stats.blocks_total - stats.blocks_free - stats.blocks_cached
    return ("held", held), ("cached", stats.blocks_cached), ("free", stats.blocks_free)


def _identity(engine: WatchedEngine) -> tuple[str, ...]:
    info = engine.info
    hashes = (info.weights_sha256, engine.template_sha256)
    return (engine.model, engine.number, engine.revision, *hashes, info.quantization)
