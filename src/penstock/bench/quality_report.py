"""The report of `bench quality`: what a file of that kind holds, and what is shown of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from penstock.bench.quality import Quality, Reading
from penstock.bench.tables import Cell, Item, Note, Table


def quality_fields(found: Quality | None, readings: Sequence[Reading], limit: float) -> dict[str, Any]:
    """Beside the frame of every result. `limit` is a share: 0.01 is one percent."""
    return {
        "runs": [_run(reading) for reading in readings if reading.pieces],
        "quality": asdict(found) if found else None,
        "limit": limit,
        "within": None if found is None else found.difference <= limit,
    }


def _run(reading: Reading) -> dict[str, Any]:
    return {
        "precision": reading.precision,
        "perplexity": reading.perplexity(sorted(reading.pieces)),
        "tokens": reading.tokens,
        "seconds": reading.seconds,
        "interrupted": reading.interrupted,
    }


def quality_items(content: dict[str, Any]) -> Iterator[Item]:
    subject, runs, found = content["subject"], content["runs"], content["quality"]
    yield Table(
        title=f"{subject['model']}, {subject['text']}",
        head=("precision", "perplexity", "tokens", "tokens/s"),
        rows=[
            (
                run["precision"],
                Cell(f"{run['perplexity']:.4f}", "strong"),
                f"{run['tokens']:,}",
                f"{run['tokens'] / run['seconds']:.0f}",
            )
            for run in runs
        ],
        note=f"Read in pieces of at most {subject['context']} tokens, each with nothing before it.",
    )
    if found is None:
        yield Note("Stopped before both had read a piece: there is nothing to compare.", "bad")
        return
    chosen, reference = (run["precision"] for run in runs)
    if chosen == reference:
        yield Note(f"Both computed in {chosen}; name another one with --precision.", "bad")
    between = "" if found["low"] is None else f"{found['low']:+.3%} to {found['high']:+.3%}"
    yield Table(
        title=f"{chosen} against {reference}, {found['tokens']:,} tokens in {found['pieces']} pieces",
        head=("figure", "value", "95% interval"),
        rows=[
            ("perplexity, difference", Cell(f"{found['difference']:+.3%}", "strong"), between),
            ("log-probabilities, mean absolute difference", f"{found['absolute_difference']:.4f}", ""),
            ("likeliest token the same", f"{found['agreement']:.2%}", ""),
            ("divergence, nats per token, at least", f"{found['divergence']:.5f}", ""),
        ],
    )
    limit = f"the limit of {content['limit'] * 100:g}%"
    if content["within"]:
        yield Note(f"The perplexity is within {limit}.", "good")
    else:
        yield Note(f"The perplexity is worse than {limit} allows.", "bad")
