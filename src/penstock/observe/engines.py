"""The engines' accounts of themselves as metrics: read when somebody asks, not copied token by token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.config import EngineInfo
from penstock.engine.process import DEATHS
from penstock.engine.request import EngineStats
from penstock.observe.catalogue import Families
from penstock.observe.gpu import GpuWatch
from penstock.observe.instruments import copy


@dataclass(frozen=True, slots=True)
class WatchedEngine:
    """An engine's latest account of itself."""

    model: str
    number: str  # among the engines of its model
    info: EngineInfo
    stats: EngineStats
    restarts: int = 0
    version: tuple[str, ...] = ("", "", "", "")  # as `version_of` says
    gpu: int | None = None  # its number, as the driver counts
    deaths: Mapping[str, int] = field(default_factory=dict)  # by cause
    told: bool = True  # its account has come; of others only the deaths are known


def version_of(info: EngineInfo, revision: str, template_sha256: str) -> tuple[str, str, str, str]:
    """What an engine has loaded. Replicas of one model that differ here answer differently."""
    return revision, info.weights_sha256, template_sha256, info.quantization


def gpu_of(info: EngineInfo, gpus: GpuWatch | None) -> int | None:
    """The GPU that it computes on, as the driver counts; None: on the CPU, or nobody knows."""
    return gpus.index_of(info.gpu) if gpus is not None and info.device.startswith("cuda") else None


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
    everyone = list(engines)
    engines = [each for each in everyone if each.told]
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
        (
            (
                (each.model, each.number, "" if each.gpu is None else str(each.gpu)),
                each.info.kv_cache_bytes,
            )
            for each in engines
        ),
    )
    copy(families.model_info, (((each.model, each.number, *each.version), 1.0) for each in engines))
    deaths: Counter[tuple[str, str]] = Counter()
    for each in everyone:  # a sum without one of them would be a fall
        # From nothing on: a count that begins with the first one hides it.
        deaths.update({(each.model, cause): each.deaths.get(cause, 0) for cause in DEATHS})
    copy(families.deaths, deaths.items())


def _blocks(stats: EngineStats) -> tuple[tuple[str, int], ...]:
    held = stats.blocks_total - stats.blocks_free - stats.blocks_cached
    return ("held", held), ("cached", stats.blocks_cached), ("free", stats.blocks_free)
