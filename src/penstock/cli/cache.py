"""`penstock cache`: how well the response cache tells questions apart."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.options import examples
from penstock.cli.table import table
from penstock.errors import ConfigError

app = typer.Typer(
    help="Measure the semantic cache.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.callback()
def _root() -> None:
    """With one command alone its name would be left out."""


@app.command(
    "eval",
    epilog=examples(
        ("penstock cache eval --data pairs.csv", "the shares of pairs that would hit, by kind"),
        ("penstock cache eval --data pairs.csv.gz --json", "for scripts; the keys are in the guide"),
        ("penstock cache eval --data pairs.csv --sweep", "and at other similarities"),
        ("penstock cache eval --data pairs.csv --examples 20", "and what would hit wrongly"),
    ),
)
def evaluate(
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="FILE",
            help="CSV, also compressed: columns a, b, label (1: the same question) and kind.",
            show_default=False,
        ),
    ],
    similarity: Annotated[
        float | None,
        typer.Option(
            "--similarity",
            metavar="COSINE",
            help="Least similarity for the verifier to be asked. [dim]Default: the configuration's.[/dim]",
            show_default=False,
        ),
    ] = None,
    sweep: Annotated[bool, typer.Option("--sweep", help="Also at other similarities.")] = False,
    shown: Annotated[
        int,
        typer.Option("--examples", metavar="N", min=0, help="Print up to N pairs that would hit wrongly."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure the semantic cache on pairs of questions: what it would hit, rightly and wrongly."""
    from penstock.aio.encoder import MODEL, load_encoder
    from penstock.cli.pull import fetch_progress
    from penstock.config.routing import CacheConfig
    from penstock.gateway.cache import verify_pairs

    least = CacheConfig().similarity if similarity is None else similarity
    if not 0.0 <= least <= 1.0:
        raise ConfigError(f"--similarity must be from 0 to 1, got {least}.")
    pairs = verify_pairs.read_pairs(data)
    with fetch_progress(quiet=True) as fetching:
        encoder = load_encoder(progress=fetching)
    with _progress() as told:
        rated = verify_pairs.rate(pairs, encoder.embed, told)
    result = {"data": data.name, "encoder": MODEL, **verify_pairs.report(rated, least)}
    if sweep:
        result["sweep"] = verify_pairs.sweep(rated)
    wrong = verify_pairs.false_hits(rated, least)[:shown]
    if as_json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        _print(result)
    for likeness, pair in wrong:
        print(f"{likeness:.3f}  {pair.a}  |  {pair.b}", file=sys.stderr)


def _print(result: dict[str, Any]) -> None:
    kinds: dict[str, dict[str, Any]] = result["kinds"]
    thresholds = list(next(iter(kinds.values()))["near_at"])
    print(
        f"{result['pairs']:,} pairs; the verifier is asked from a similarity of {result['similarity']:g}.\n"
    )
    heads = ("KIND", "PAIRS", *(f">= {threshold}" for threshold in thresholds), "VERIFIED", "95% INTERVAL")
    rows = [
        (
            kind,
            f"{found['pairs']:,}",
            *(_percent(share) for share in found["near_at"].values()),
            _percent(found["hit"]),
            _between(found["interval"]),
        )
        for kind, found in kinds.items()
    ]
    print(table(heads, rows, numbers=len(heads) - 1))
    print()
    names = (
        ("hard negatives accepted", "hard_negatives_accepted"),
        ("all negatives accepted", "negatives_accepted"),
        ("paraphrases hit", "paraphrases_hit"),
        ("hits that are right", "precision"),
    )
    for name, key in names:
        print(f"{name:24} {_percent(result[key]):>7}  ({_between(result['intervals'][key])})")
    took = result["microseconds_per_decision"]
    print(f"{'time of a decision':24} {took['p50']:.0f} µs, p99 {took['p99']:.0f} µs")
    if "sweep" in result:
        heads = ("SIMILARITY", "PARAPHRASES", "HARD NEGATIVES", "VERIFIED: PARAPHRASES", "HARD NEGATIVES")
        lines = [
            (f"{row['similarity']:g}", *(_percent(share) for share in list(row.values())[1:]))
            for row in result["sweep"]
        ]
        print()
        print(table(heads, lines, numbers=len(heads)))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def _between(interval: list[float] | None) -> str:
    return "-" if interval is None else f"{_percent(interval[0])} to {_percent(interval[1])}"


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("Embedding pairs", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
