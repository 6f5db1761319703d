"""A result as one HTML file: tables and plots, no script, nothing from the network. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from penstock.bench.drawings import drawings
from penstock.bench.figures import grouped
from penstock.bench.items import items
from penstock.bench.plots import COLOURS, Plot
from penstock.bench.result import runs_of
from penstock.bench.statistics import Run, median_run
from penstock.bench.style import CSS
from penstock.bench.tables import Cell, Item, Note, Table, label, milliseconds, number

MOST_HEADLINES = 4  # runs whose main figures stand at the top
TITLES = {
    "offline": "The engine in one process",
    "serve": "A server under load",
    "sweep": "From idle to saturation",
    "compare": "Two results compared",
    "embed": "Embeddings",
    "quality": "Quality of the fast path",
}


def page(content: dict[str, Any]) -> str:
    """Everything that the terminal shows, with plots, and the way to measure it again."""
    subject = content["subject"]
    title = TITLES[content["kind"]]
    sides = [f"{side}: {name}" for side, name in zip("AB", subject.get("names", ()), strict=False)]
    named = subject.get("model") or ", ".join(sides)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />\n'
        '<meta name="color-scheme" content="light dark" />\n'
        f"<title>{escape(f'{title}: {named}' if named else title)}</title>\n"
        f"<style>{CSS}</style>\n</head>\n<body>\n"
        f"<header><p class='kind'>penstock bench {escape(content['kind'])}</p><h1>{escape(title)}</h1>"
        f"<p class='subject'>{escape(str(named))}</p>{_when(content)}</header>\n<main>\n"
        f"{_headlines(runs_of(content))}"
        f"{_plots(drawings(content))}"
        f"<section aria-label='Figures'>{''.join(_item(item) for item in items(content))}</section>\n"
        f"{_again(content)}"
        "</main>\n</body>\n</html>\n"
    )


def _when(content: dict[str, Any]) -> str:
    host, at = content["machine"], content["measured_at"]
    return (
        f"<p class='when'><time datetime='{escape(at)}'>{escape(at.replace('T', ' '))}</time> · "
        f"{escape(host['processor'])}, {host['cores']} cores, {host['memory_gib']} GiB · "
        f"penstock {escape(content['versions']['penstock'])}</p>"
    )


def _headlines(runs: Sequence[Run]) -> str:
    """The main figures of each run, large."""
    rows = []
    for run in [median_run(group) for group in grouped(runs)][:MOST_HEADLINES]:
        if run.mode == "sweep":
            return ""
        cards = [
            ("output tok/s", number(run.output_tokens_per_second)),
            ("decode tok/s", number(run.decode_tokens_per_second)),
            ("TTFT p50", f"{milliseconds(run.ttft.p50)} ms"),
            ("ITL p50", f"{milliseconds(run.itl.p50)} ms"),
            ("end to end p99", f"{milliseconds(run.e2e.p99)} ms"),
        ]
        if run.completed < run.requests:
            cards.append(("not good", f"{run.requests - run.completed} of {run.requests}"))
        drawn = "".join(
            f"<div class='card{' alarm' if name == 'not good' else ''}'><dt>{escape(name)}</dt>"
            f"<dd>{escape(value)}</dd></div>"
            for name, value in cards
        )
        rows.append(f"<h2>{escape(label(run))}</h2><dl class='cards'>{drawn}</dl>")
    return f"<section aria-label='Headlines'>{''.join(rows)}</section>\n" if rows else ""


def _plots(plots: Sequence[Plot]) -> str:
    if not plots:
        return ""
    return f"<section class='plots' aria-label='Plots'>{''.join(_figure(plot) for plot in plots)}</section>\n"


def _figure(plot: Plot) -> str:
    entries = "".join(
        f"<li><svg viewBox='0 0 26 8' aria-hidden='true'><line class='line s{at % COLOURS}' "
        f"x1='1' x2='25' y1='4' y2='4'/></svg>{escape(name)}</li>"
        for at, name in enumerate(plot.legend)
    )
    legend = f"<ul class='legend'>{entries}</ul>" if entries else ""
    return (
        f"<figure><figcaption><b>{escape(plot.title)}</b><span>{escape(plot.note)}</span></figcaption>"
        f"{plot.svg}{legend}</figure>"
    )


def _item(item: Item) -> str:
    if isinstance(item, Note):
        return f"<p class='note {item.tone}'>{escape(item.text)}</p>"
    return _table(item)


def _table(table: Table) -> str:
    def cell(at: int, value: Cell | str) -> str:
        one = value if isinstance(value, Cell) else Cell(value)
        kind = "text" if at < table.texts else "number"
        tag = "th scope='row'" if at == 0 and one.text else "td"
        return f"<{tag} class='{kind} {one.tone}'>{escape(one.text)}</{tag.split()[0]}>"

    head = "".join(
        f"<th scope='col' class='{'text' if at < table.texts else 'number'}'>{escape(name)}</th>"
        for at, name in enumerate(table.head)
    )
    rows = "".join(
        f"<tr>{''.join(cell(at, value) for at, value in enumerate(row))}</tr>" for row in table.rows
    )
    note = f"<p class='note'>{escape(table.note)}</p>" if table.note else ""
    return (
        f"<div class='scroll' tabindex='0' role='region' aria-label='{escape(table.title)}'>"
        f"<table><caption>{escape(table.title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _again(content: dict[str, Any]) -> str:
    """What is needed to measure the same again."""
    details = {"Subject": content["subject"], "Machine": content["machine"], "Versions": content["versions"]}
    for letter, side in zip("AB", content.get("sides", ()), strict=False):
        named = {"command": side["command"], "measured_at": side["measured_at"]}
        details[letter] = named | side["subject"] | side["machine"] | side["versions"]
    listed = "".join(
        f"<h3>{name}</h3><dl class='pairs'>"
        + "".join(
            f"<div><dt>{escape(str(key))}</dt><dd>{escape(_plain(value))}</dd></div>"
            for key, value in fields.items()
        )
        + "</dl>"
        for name, fields in details.items()
    )
    return (
        "<section aria-label='How it was measured'><h2>How it was measured</h2>"
        f"<pre tabindex='0'><code>{escape(content['command'])}</code></pre>"
        f"<details><summary>Subject, machine and versions</summary>{listed}</details></section>\n"
    )


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
