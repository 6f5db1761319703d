"""How often the verifier is wrong, and how often it misses: measured on pairs of questions with a label."""

from __future__ import annotations

import csv
import io
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.aio.monitor.bounds import wilson
from penstock.aio.packed import read_unpacked
from penstock.errors import ConfigError
from penstock.gateway.cache.semantic import Embed
from penstock.gateway.cache.verify import Decision, accept

COLUMNS: Final = ("a", "b", "label", "kind")
THRESHOLDS: Final = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
_BATCH: Final = 256


@dataclass(frozen=True, slots=True)
class Pair:
    a: str
    b: str
    same: bool
    kind: str


@dataclass(frozen=True, slots=True)
class Rated:
    """Pairs, how near they are, and what the verifier says of each."""

    pairs: tuple[Pair, ...]
    similarity: NDArray[np.float32]
    decisions: tuple[Decision, ...]
    seconds: tuple[float, ...]  # that each decision took


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a CSV file, compressed or not."""
    pairs: list[Pair] = []
    try:
        text = read_unpacked(path).decode("utf-8-sig")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
        if missing:
            raise ConfigError(
                f"{path} has no column {missing[0]!r}; the columns {', '.join(COLUMNS)} are needed, "
                f"and it has {', '.join(rows.fieldnames or ()) or 'none'}."
            )
        for number, row in enumerate(rows, start=1):
            label = (row["label"] or "").strip()
            if label not in ("0", "1") or row["a"] is None or row["b"] is None or row["kind"] is None:
                raise ConfigError(
                    f"Row {number} of {path} is no pair: its label must be 0 or 1, got {label[:40]!r}."
                )
            pairs.append(Pair(row["a"], row["b"], label == "1", row["kind"].strip()))
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (UnicodeDecodeError, EOFError, zlib.error, csv.Error) as error:
        raise ConfigError(f"{path} is no CSV file in UTF-8, compressed with gzip or not: {error}.") from None
    if not pairs:
        raise ConfigError(f"{path} has no pairs.")
    return pairs


def rate(pairs: Sequence[Pair], embed: Embed, progress: Callable[[int, int], None]) -> Rated:
    """`progress` is told how many of all pairs have vectors."""
    similarity = np.empty(len(pairs), np.float32)
    for start in range(0, len(pairs), _BATCH):
        some = pairs[start : start + _BATCH]
        first, second = embed([pair.a for pair in some]), embed([pair.b for pair in some])
        similarity[start : start + len(some)] = (first * second).sum(axis=1)
        progress(start + len(some), len(pairs))
    timed = list(_decided(pairs, similarity))
    return Rated(tuple(pairs), similarity, tuple(each for each, _ in timed), tuple(took for _, took in timed))


def _decided(pairs: Sequence[Pair], similarity: NDArray[np.float32]) -> Iterator[tuple[Decision, float]]:
    for pair, likeness in zip(pairs, similarity, strict=True):
        began = time.perf_counter()
        decision = accept(pair.a, pair.b, float(likeness))
        yield decision, time.perf_counter() - began


def report(rated: Rated, similarity: float) -> dict[str, Any]:
    """Shares of the pairs that would hit, by kind; `similarity` is the least the verifier is asked at."""
    near = rated.similarity >= similarity
    hits = near & np.array([decision.accept for decision in rated.decisions])
    same = np.array([pair.same for pair in rated.pairs])
    kinds = np.array([pair.kind for pair in rated.pairs])
    hard = np.char.startswith(kinds, "hard") & ~same
    took = np.array(rated.seconds) * 1e6
    return {
        "pairs": len(rated.pairs),
        "similarity": similarity,
        "hard_negatives_accepted": _share(hits[hard]),
        "paraphrases_hit": _share(hits[same]),
        "negatives_accepted": _share(hits[~same]),
        "precision": _share(same[hits]),
        "intervals": {
            "hard_negatives_accepted": _interval(hits[hard]),
            "paraphrases_hit": _interval(hits[same]),
            "negatives_accepted": _interval(hits[~same]),
            "precision": _interval(same[hits]),
        },
        "kinds": {
            str(kind): _kind(rated.similarity[kinds == kind], hits[kinds == kind], near[kinds == kind])
            for kind in sorted(set(kinds.tolist()))
        },
        "microseconds_per_decision": {
            "p50": float(np.percentile(took, 50)),
            "p99": float(np.percentile(took, 99)),
        },
    }


def sweep(rated: Rated) -> list[dict[str, float | None]]:
    """The two shares that matter at each threshold, of likeness alone and with the verifier."""
    rows: list[dict[str, float | None]] = []
    for threshold in THRESHOLDS:
        verified = report(rated, threshold)
        same = np.array([pair.same for pair in rated.pairs])
        hard = np.array([pair.kind.startswith("hard") and not pair.same for pair in rated.pairs])
        near = rated.similarity >= threshold
        rows.append(
            {
                "similarity": threshold,
                "paraphrases_near": _share(near[same]),
                "hard_negatives_near": _share(near[hard]),
                "paraphrases_hit": verified["paraphrases_hit"],
                "hard_negatives_accepted": verified["hard_negatives_accepted"],
            }
        )
    return rows


def false_hits(rated: Rated, similarity: float) -> list[tuple[float, Pair]]:
    """The pairs that would hit and must not, the nearest first."""
    found = [
        (float(likeness), pair)
        for pair, likeness, decision in zip(rated.pairs, rated.similarity, rated.decisions, strict=True)
        if decision.accept and likeness >= similarity and not pair.same
    ]
    return sorted(found, key=lambda each: -each[0])


def _kind(
    similarity: NDArray[np.float32], hits: NDArray[np.bool_], near: NDArray[np.bool_]
) -> dict[str, Any]:
    return {
        "pairs": len(hits),
        "near": _share(near),
        "hit": _share(hits),
        "interval": _interval(hits),
        "near_at": {f"{threshold:.2f}": _share(similarity >= threshold) for threshold in THRESHOLDS},
    }


def _share(of: NDArray[np.bool_]) -> float | None:
    return round(float(of.mean()), 4) if len(of) else None


def _interval(of: NDArray[np.bool_]) -> list[float] | None:
    """Wilson's, at 95%."""
    if not len(of):
        return None
    return [round(bound, 4) for bound in wilson(float(of.sum()), len(of))]
