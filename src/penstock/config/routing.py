"""The sections about choosing a model: the target, the second look, the monitor, and the response cache.

The tiers themselves stand beside the models, in `sections.py`. Money is in US dollars, times in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config.catalogue import Section, option
from penstock.config.read import FAILED, Reader
from penstock.config.tree import Node
from penstock.config.values import (
    BOOLEAN,
    COUNT,
    MONEY,
    NAMES,
    NATURAL,
    NUMBER_FROM_0,
    POSITIVE,
    SECONDS_ABOVE_0,
    SHARE,
    SIZE_ABOVE_0,
    TEXT,
    one_of,
)

PASS_OVER = ("up", "down", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeConfig:
    """A second look at a cheap answer before it is sent; one that does not pass is asked for one tier up."""

    enabled: bool = option(False, BOOLEAN, "Whether to look.")
    confidence: float = option(0.5, SHARE, "Answers below this go one tier up.")
    hold_tokens: int = option(24, NATURAL, "Tokens of a stream that are held back for the look; 0: none are.")
    consistency: int = option(
        0, NATURAL, "Further samples to compare a doubtful answer with; each costs as much as the answer."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorConfig:
    """What is done to know how good cheap answers are: some of them are asked for again, of the expert."""

    enabled: bool = option(True, BOOLEAN, "Whether to check answers.")
    share: float = option(0.05, SHARE, "Of the answers of the lower tiers, how many are checked.")
    daily_budget: float = option(5.0, MONEY, "USD that checking may cost in a day (UTC).")
    tiers: tuple[str, ...] = option((), NAMES, "Whose answers are checked; otherwise the lower half.")
    threshold: float = option(
        0.85, SHARE, "A kind of query goes one tier up when quality there is surely below this."
    )
    upgrade_threshold: float = option(
        0.15, SHARE, "Learn anew when surely more than this share should have gone to a better tier."
    )
    retrain_days: float = option(7.0, POSITIVE, "Learn anew after so many days at the latest.")
    rubric: str | None = option(
        None, TEXT, "The tier that is asked which of two answers in prose is better; otherwise nobody is."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingConfig:
    """How `model: auto` chooses among the tiers."""

    target: float = option(0.95, SHARE, "Quality to reach, as a share of the expert tier's.")
    predictor: str = option(
        "light", TEXT, "What rates queries: `light`, `encoder` (MiniLM), or the file of a trained one."
    )
    caution: float = option(
        0.0, NUMBER_FROM_0, "Standard deviations by which a cheap tier's expected quality is lowered."
    )
    pass_over: str = option(
        "up", one_of(PASS_OVER), "Where to go when a tier is down, full or unable; `no`: refuse."
    )
    load_weight: float = option(
        0.0, NUMBER_FROM_0, "How much dearer a tier counts when its queue would take all of `queue.wait`."
    )
    cpu_price: float = option(0.05, MONEY, "USD for an hour of a core, for the books of the router itself.")
    log: str | None = option(None, TEXT, "A file that every decision is appended to, for `route replay`.")
    cascade: CascadeConfig = option(
        CascadeConfig(), Section(CascadeConfig, "one"), "A second look at cheap answers."
    )
    monitor: MonitorConfig = option(
        MonitorConfig(), Section(MonitorConfig, "one"), "Checking cheap answers against the expert's."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """Answers that are kept and given again. `cache: exact` and `cache: semantic` are short forms."""

    exact: bool = option(False, BOOLEAN, "Give the same answer to the same deterministic request.")
    semantic: bool = option(
        False, BOOLEAN, "Also to a question that only says the same in other words; implies `exact`."
    )
    similarity: float = option(
        0.8, SHARE, "Least similarity of two questions for the verifier to look at them at all."
    )
    ttl: float = option(3600.0, SECONDS_ABOVE_0, "How long an answer is kept.")
    max_entries: int = option(100_000, COUNT, "Most answers that are kept.")
    max_bytes: int = option(256 << 20, SIZE_ABOVE_0, "Most bytes of answers that are kept.")
    store: str = option("memory", TEXT, "Where: `memory`, `sqlite`, or the URL of a Redis server.")
    secret: str | None = option(
        None,
        TEXT,
        "What answers are sealed with there; the same for all gateways that share a Redis server. Otherwise "
        "one is made and kept in the state folder.",
        secret=True,
    )

    @property
    def enabled(self) -> bool:
        return self.exact or self.semantic


def read_cache(reader: Reader, node: Node, place: str) -> object:
    """A section, or one word in place of it."""
    if isinstance(node.value, dict):
        return reader.section(CacheConfig, node, place)
    word = node.plain()
    if word in ("exact", "semantic"):
        return CacheConfig(exact=True, semantic=word == "semantic")
    if word in (False, None):
        return CacheConfig()
    reader.problems.add(place, f"must be 'exact', 'semantic', false or a section, got {node.shown}")
    return FAILED
