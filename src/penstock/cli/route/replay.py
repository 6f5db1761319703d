"""`penstock route replay`: what another target, ladder, price or predictor would have done."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.cli.options import examples
from penstock.cli.route.ladder import picodollars, query_of_body, share, steps_of
from penstock.cli.route.money import dollars, exact, percent
from penstock.cli.state import Config
from penstock.cli.table import table
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.aio.decision import Decision
    from penstock.aio.query import Query
    from penstock.aio.replay import Mix, Replay

EPILOG = examples(
    ("penstock route replay decisions.jsonl --target 0.90", "had less quality been enough"),
    ("penstock route replay decisions.jsonl --tiers simple,expert", "had there been two tiers"),
    ("penstock route replay decisions.jsonl --config other.yaml", "on another ladder, at other prices"),
    ("penstock route replay requests.jsonl --config penstock.yaml --json", "requests that were never routed"),
)
MOST_LINE = 16 << 20  # bytes
SAID = 5  # damaged lines that are named one by one


def replay(
    logs: Annotated[
        list[str],
        typer.Argument(metavar="LOG...", help="Logs of decisions, or of requests, one JSON a line."),
    ],
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="SHARE",
            help="Share of the expert's quality. [dim]Default: each request's own.[/dim]",
            show_default=False,
        ),
    ] = None,
    tiers: Annotated[
        str | None,
        typer.Option("--tiers", metavar="NAMES", help="Only these tiers, with commas.", show_default=False),
    ] = None,
    predictor: Annotated[
        str | None,
        typer.Option(
            "--predictor",
            metavar="NAME",
            help="Rate anew with this one (light, encoder, or a file); needs texts in the log.",
            show_default=False,
        ),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option("--max-cost", metavar="USD", help="Most that a request may cost.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    config: Config = None,
) -> None:
    """Route past requests again and compare: tiers, cost, predicted quality. No model is asked."""
    from penstock.aio.predictor import load_predictor
    from penstock.aio.replay import Replay
    from penstock.config import load_settings

    share("--target", target)
    gateway = load_settings({}, config=config).gateway
    found = load_predictor(predictor or gateway.routing.predictor)
    kept = None if tiers is None else [name.strip() for name in tiers.split(",") if name.strip()]
    # A file that lies in this folder by chance is no other ladder; one that was named is.
    ladder = steps_of(gateway, found.sample.references)
    steps = ladder if config is not None else None
    if target is None and config is not None:
        target = gateway.routing.target
    again = Replay(
        found,
        steps=steps,
        otherwise=ladder,
        tiers=kept,
        target=target,
        caution=gateway.routing.caution,
        max_cost=picodollars("--max-cost", max_cost),
        anew=predictor is not None,
    )
    skipped, damaged = _run(again, logs)
    if as_json:
        print(json.dumps(_as_json(again, skipped, damaged), indent=2, ensure_ascii=False))
        return
    for place, why in damaged[:SAID]:
        print(f"{place}: {why}", file=sys.stderr)
    if damaged:
        print(f"{len(damaged):,} damaged lines were left out.", file=sys.stderr)
    for why, count in skipped.most_common():
        print(f"{count:,} requests were left out: {why}.", file=sys.stderr)
    if not again.after.requests:
        raise ConfigError(
            f"Nothing in {', '.join(logs)} can be routed again; a server logs to `routing.log`."
        )
    print("\n".join(_lines(again)))


def _run(again: Replay, logs: list[str]) -> tuple[Counter[str], list[tuple[str, str]]]:
    """What was left out for which reason, and which lines could not be read."""
    from penstock.aio.decision import Decision

    skipped: Counter[str] = Counter()
    damaged: list[tuple[str, str]] = []
    for log in logs:
        for number, line in _read(log):
            read = _request(line)
            if isinstance(read, str):
                damaged.append((f"{log}, line {number}", read))
                continue
            why = again.add(read) if isinstance(read, Decision) else again.add_query(read)
            if why is not None:
                skipped[why] += 1
    return skipped, damaged


def _read(log: str) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not empty. One that is too long is cut, and found to be damaged."""
    try:
        with Path(log).open("rb") as file:
            number = 0
            while line := file.readline(MOST_LINE):
                number += 1
                while not line.endswith(b"\n") and (more := file.readline(MOST_LINE)):
                    line = line[:1] + more[-1:]  # too long to be one of ours: no more of it is kept
                if line.strip():
                    yield number, line
    except OSError as error:
        raise ConfigError(f"The log {log} cannot be read ({error.strerror or error}).") from None


def _request(line: bytes) -> Decision | Query | str:
    """A decision, a request, or what is wrong with the line."""
    from penstock.aio.decision import Decision
    from penstock.aio.query import query_of_text

    try:
        body = msgspec.json.decode(line)
        if not isinstance(body, dict):
            return "it is no JSON object"
        if "candidates" in body:
            decision = msgspec.json.decode(line, type=Decision)
            return decision if decision.candidates else "it names no tiers"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"it cannot be read ({error})"
    except RecursionError:
        return "it cannot be read (too many levels)"
    if isinstance(body.get("text"), str):
        return query_of_text(body["text"])
    query = query_of_body(body)
    return query or "it is neither a decision nor a request (with text, messages, input or prompt)"


# ---------------------------------------------------------------- for people


def _lines(again: Replay) -> list[str]:
    before, after = again.before, again.after
    names = list(dict.fromkeys([*after.tiers, *before.tiers]))
    rows = []
    for name in names:
        cells = [name]
        for mix in (before, after) if before.requests else (after,):
            found = mix.tiers.get(name)
            requests, cost = (found.requests, found.cost) if found else (0, 0)
            cells += [f"{requests:,}", percent(requests, mix.requests), dollars(cost)]
        rows.append(tuple(cells))
    heads = ["TIER", "REQUESTS", "SHARE", "COST", "THEN", "SHARE", "COST"][: len(rows[0])]
    lines = [table(heads, rows, numbers=len(heads) - 1), ""]
    if before.requests:
        lines.append(f"As it was:  {_said(before)}")
        lines.append(f"As asked:   {_said(after)}")
        change = after.cost - before.cost
        lines.append(
            f"{dollars(abs(change))} {'more' if change > 0 else 'less'} ({percent(change, before.cost)}) for "
            f"answers; {again.lower:,} requests to cheaper tiers, {again.higher:,} to dearer ones."
        )
    else:
        lines.append(f"As asked:   {_said(after)}")
    if again.pinned:
        lines.append(f"{again.pinned:,} requests had their tier pinned; they are in no sum.")
    lines.append("Quality is as predicted; what classifier, cascade and monitor cost is not in here.")
    return lines


def _said(mix: Mix) -> str:
    return (
        f"{mix.requests:,} requests, {dollars(mix.cost)} against {dollars(mix.expert_cost)} of always asking "
        f"the expert ({percent(mix.expert_cost - mix.cost, mix.expert_cost)} saved), at "
        f"{100 * mix.quality / mix.expert_quality if mix.expert_quality else 0:.1f}% of its quality"
    )


# ---------------------------------------------------------------- for programs


def _as_json(again: Replay, skipped: Counter[str], damaged: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "before": _mix(again.before) if again.before.requests else None,
        "after": _mix(again.after),
        "to_cheaper": again.lower,
        "to_dearer": again.higher,
        "pinned": again.pinned,
        "skipped": dict(skipped),
        "damaged": [{"where": where, "why": why} for where, why in damaged],
    }


def _mix(mix: Mix) -> dict[str, Any]:
    return {
        "requests": mix.requests,
        "cost_usd": exact(mix.cost),
        "always_expert_usd": exact(mix.expert_cost),
        "saving": (mix.expert_cost - mix.cost) / mix.expert_cost if mix.expert_cost else None,
        "predicted_quality": mix.quality / mix.requests if mix.requests else None,
        "predicted_share_of_expert": mix.quality / mix.expert_quality if mix.expert_quality else None,
        "tiers": {
            name: {"requests": found.requests, "cost_usd": exact(found.cost)}
            for name, found in mix.tiers.items()
        },
    }
