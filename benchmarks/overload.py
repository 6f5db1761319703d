"""Show what a full house is like: real engines behind `penstock serve`, asked for more than they can do.

Two scenarios, each beside its bar:

tenants   One tenant floods at ten times its limit; what happens to the time to first token (TTFT) of another,
          with the flood and without, by turns.
overload  Five times what the engines can do, nearly all of it batch work: goodput against the peak, how fast
          refusals come, and the TTFT of interactive requests against that of an empty house.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from overload.clients import Report, Sizes
from overload.scenarios import TENANT_SHARE, overload, peak_of, tenants
from overload.server import house
from rich.console import Console
from rich.table import Table

from penstock.bench.machine import machine, versions

EXAMPLES = """\
examples:
  python benchmarks/overload.py                        both scenarios, about ten minutes
  python benchmarks/overload.py --only tenants         one of them
  python benchmarks/overload.py --replicas 2           two engines behind one name
  python benchmarks/overload.py --json out.json        every request, as JSON
"""
SCENARIOS = ("tenants", "overload")


def measure(options: argparse.Namespace, folder: Path, console: Console) -> int:
    sizes = Sizes(seconds=options.seconds, repeats=options.repeats, replicas=options.replicas)
    host, report = machine(), Report()
    date = datetime.now(UTC).isoformat(timespec="seconds")
    console.print(
        f"{host['processor']}, {host['cores']} cores, {host['memory_gib']} GiB, {date}", markup=False
    )
    console.print("the peak, and the overload" if "overload" in options.only else "the peak")
    classes = {name: {"class": name} for name in ("interactive", "batch")}
    with house(sizes, _made(folder / "overload"), classes) as running:
        tokens, requests = asyncio.run(peak_of(running, console.print))
        if "overload" in options.only:
            asyncio.run(overload(running, tokens, requests, report, console.print))
    if "tenants" in options.only:
        console.print("two tenants")
        flood: dict[str, int] = {"requests_per_minute": max(1, round(requests * TENANT_SHARE * 60))}
        if options.flood_concurrent:
            flood["concurrent"] = options.flood_concurrent
        both = {"quiet": {}, "flood": flood}
        with house(sizes, _made(folder / "tenants"), both) as running:
            asyncio.run(tenants(running, requests, report, console.print))
    console.print(_table(report, f"{tokens:.1f} tokens/s at the peak, {sizes.replicas} engines"))
    if options.json:
        about = {
            "date": date,
            "command": shlex.join(["python", "benchmarks/overload.py", *sys.argv[1:]]),
            "machine": host,
            "versions": versions(),
            "sizes": asdict(sizes),
            "peak": {"tokens_per_second": tokens, "requests_per_second": requests},
        }
        options.json.write_text(json.dumps({**about, **asdict(report)}, indent=1) + "\n")
        console.print(f"Written to {options.json}.", markup=False)
    return 0


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _table(report: Report, title: str) -> Table:
    shown = Table(title=title, title_justify="left", header_style="bold")
    for column in ("scenario", "figure", "bar", "measured"):
        shown.add_column(column)
    colours = {True: "green", False: "red", None: "default"}
    for row in report.rows:
        measured = f"[{colours[row['met']]}]{row['measured']}[/]"
        shown.add_row(row["scenario"], row["figure"], row["bar"], measured)
    return shown


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/overload.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every request to this file")
    parser.add_argument(
        "--only", default=",".join(SCENARIOS), help=f"some of {','.join(SCENARIOS)} (default: all)"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of each part (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=2, help="of the tenants' turns (default: %(default)s)")
    parser.add_argument("--replicas", type=int, default=1, help="engines (default: %(default)s)")
    parser.add_argument(
        "--flood-concurrent",
        type=int,
        default=2,
        metavar="N",
        help="requests the flooding tenant may have at a time, beside its limit a minute; 0 is no limit: it "
        "may then use a minute's worth at once and fill every place (default: %(default)s)",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep configurations and logs in this folder"
    )
    options = parser.parse_args(arguments)
    options.only = [name.strip() for name in options.only.split(",")]
    if unknown := set(options.only) - set(SCENARIOS):
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}.")
    if options.seconds <= 0 or options.repeats < 1 or options.replicas < 1 or options.flood_concurrent < 0:
        parser.error("--seconds, --repeats and --replicas must be positive, --flood-concurrent at least 0.")
    return options


def interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    options = options_of(arguments)
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 140)
    signal.signal(signal.SIGTERM, interrupted)
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as scratch:
        try:
            return measure(options, options.keep or Path(scratch), console)
        except KeyboardInterrupt:
            console.print("\nInterrupted; what was started is stopped.")
            return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
