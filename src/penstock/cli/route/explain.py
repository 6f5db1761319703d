"""`penstock route explain`: why a query goes to a tier, and what would send it to another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import examples
from penstock.cli.route.ladder import picodollars, query_of_body, read_body, share, steps_of
from penstock.cli.route.money import dollars, exact
from penstock.cli.state import Config
from penstock.cli.table import table
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.aio.explain import Explanation
    from penstock.aio.leanings import Contribution
    from penstock.aio.query import Query

EPILOG = examples(
    ('penstock route explain "What is the capital of France?"', "on the four example tiers"),
    ('penstock route explain "Prove that ..." --target 0.99', "at a higher quality"),
    ("penstock route explain --file body.json --config penstock.yaml", "a request's body, on your tiers"),
)
SHOWN = 12  # features
SHOWN_WORDS = 6


def explain(
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="What is asked.", show_default=False)
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="A request's body (JSON) instead.", show_default=False),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="SHARE",
            help="Share of the expert's quality. [dim]Default: as configured, or 0.95.[/dim]",
            show_default=False,
        ),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option("--max-cost", metavar="USD", help="Most that it may cost.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    config: Config = None,
) -> None:
    """Show what a query is made of, each tier's chances and cost, the choice, and what would change it."""
    from penstock.aio import explain as explaining
    from penstock.aio.predictor import load_predictor
    from penstock.config import load_settings

    share("--target", target)
    cap = picodollars("--max-cost", max_cost)
    query, most = _query(text, file)
    gateway = load_settings({}, config=config).gateway
    predictor = load_predictor(gateway.routing.predictor)
    steps = steps_of(gateway, predictor.sample.references, query)
    found = explaining.explain(
        query,
        predictor,
        steps,
        gateway.routing.target if target is None else target,
        caution=gateway.routing.caution,
        max_cost=cap,
        most_output=most,
    )
    if as_json:
        print(json.dumps(_as_json(query, found), indent=2, ensure_ascii=False))
    else:
        if not gateway.tiers:
            print("No tiers are configured; these are the four of the example.\n")
        print("\n\n".join(part for part in _parts(query, found) if part))


def _query(text: str | None, file: str | None) -> tuple[Query, int | None]:
    """The query, and the most tokens of an answer that the request allows."""
    from penstock.aio.query import query_of_text

    if (text is None) == (file is None):
        raise ConfigError(
            'Give what is asked, as in `penstock route explain "Why is the sky blue?"`, or --file.'
        )
    if text is not None:
        return query_of_text(text), None
    body = read_body(file or "")
    query = query_of_body(body)
    if query is None:
        raise ConfigError(f"--file {file} has none of the fields messages, input and prompt.")
    limits = [body.get(name) for name in ("max_completion_tokens", "max_tokens", "max_output_tokens")]
    return query, next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)


# ---------------------------------------------------------------- for people


def _parts(query: Query, found: Explanation) -> list[str]:
    return [_asked(query, found), _features(found), _tiers(found), "\n".join(_choice(found))]


def _asked(query: Query, found: Explanation) -> str:
    ask = " ".join(query.ask.split())
    shape = [f"{query.prompt_tokens} tokens", f"{query.turns} turns" if query.turns > 1 else ""]
    shape += [f"{query.tools} tools" if query.tools else "", "JSON wanted" if query.schema else ""]
    shape += [
        "media" if query.media else "",
        f"{len(query.context)} characters of context" if query.context else "",
    ]
    return "\n".join(
        [
            f"Asked      {ask[:200]}{'…' if len(ask) > 200 else ''}",
            f"Region     {found.region} ({', '.join(each for each in shape if each)})",
            f"Predictor  {found.predictor}, version {found.version}",
        ]
    )


def _features(found: Explanation) -> str:
    parts = [("FEATURE", found.features[:SHOWN]), ("WORD", found.words[:SHOWN_WORDS])]
    names = [candidate.tier.upper() for candidate in found.candidates]
    tables = [
        table(
            [head, "VALUE", *names],
            [
                (each.name, f"{each.value:.3g}", *(f"{log_odds:+.2f}" for log_odds in each.log_odds))
                for each in contributions
            ],
            numbers=1 + len(names),
        )
        for head, contributions in parts
        if contributions
    ]
    return "\n\n".join(["What counts most, in log-odds of a good answer:", *tables]) if tables else ""


def _tiers(found: Explanation) -> str:
    rows = []
    for number, (candidate, value) in enumerate(zip(found.candidates, found.values, strict=True)):
        note = "chosen" if number == found.chosen else candidate.why_not
        rows.append(
            (
                candidate.tier,
                candidate.reference,
                note,
                f"{100 * candidate.quality:.1f}%",
                f"± {100 * candidate.deviation:.1f}",
                dollars(candidate.cost),
                f"{value:+.3f}",
            )
        )
    return table(["TIER", "LIKE", "", "GOOD ENOUGH", "", "COST", "WORTH"], rows, numbers=4)


def _choice(found: Explanation) -> list[str]:
    threshold = found.threshold
    goal = f"Target {_percent(threshold.target)} of the expert's quality"
    if threshold.rate < 0:
        lines = [
            f"{goal}: no choice among these tiers reached it on held-out queries, so the expert gets all."
        ]
    else:
        lines = [
            f"{goal}: for what the expert costs, {threshold.rate:.3f} of quality must be gained.",
            f"Held out, that gave {_percent(threshold.quality)} at {_percent(threshold.cost)} of the cost.",
        ]
    if found.chosen is None:
        return [*lines, "No tier may answer this: such a request is refused."]
    lines.append(f"It goes to {found.candidates[found.chosen].tier}.")
    if found.forced:
        lines.append("The cap on the cost forbids a better tier.")
    if found.lower is not None:
        lines.append(
            f"It would go to {found.lower.tier} at a target of {_percent(found.lower.target)} or less."
        )
    if found.higher is not None:
        lines.append(f"It would go to {found.higher.tier} at a target above {_percent(found.higher.target)}.")
    lines += [
        f"It would go to {other.tier} if that cost {100 * other.share:.0f}% of what it does."
        for other in found.prices
    ]
    return lines


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


# ---------------------------------------------------------------- for programs


def _as_json(query: Query, found: Explanation) -> dict[str, Any]:
    return {
        "ask": query.ask,
        "prompt_tokens": query.prompt_tokens,
        "region": found.region,
        "predictor": found.predictor,
        "version": found.version,
        "target": found.threshold.target,
        "rate": found.threshold.rate,
        "held_out": {"quality": found.threshold.quality, "cost": found.threshold.cost},
        "features": _contributions(found.features, found),
        "words": _contributions(found.words, found),
        "tiers": [
            {
                "tier": candidate.tier,
                "like": candidate.reference,
                "quality": candidate.quality,
                "deviation": candidate.deviation,
                "output_tokens": candidate.output_tokens,
                "cost_usd": exact(candidate.cost),
                "worth": value,
                "able": candidate.able,
                "why_not": candidate.why_not,
            }
            for candidate, value in zip(found.candidates, found.values, strict=True)
        ],
        "chosen": None if found.chosen is None else found.candidates[found.chosen].tier,
        "forced": found.forced,
        "lower": None if found.lower is None else {"tier": found.lower.tier, "target": found.lower.target},
        "higher": None
        if found.higher is None
        else {"tier": found.higher.tier, "target": found.higher.target},
        "prices": [{"tier": other.tier, "share": other.share} for other in found.prices],
    }


def _contributions(contributions: list[Contribution], found: Explanation) -> list[dict[str, Any]]:
    tiers = [candidate.tier for candidate in found.candidates]
    return [
        {"name": each.name, "value": each.value, "log_odds": dict(zip(tiers, each.log_odds, strict=True))}
        for each in contributions
    ]
