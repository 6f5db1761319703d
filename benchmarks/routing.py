"""Measure what a routing decision takes on one core: from a request's body to a tier.

Every query is new and about 200 tokens long: a question with choices, a sum in a story, code to explain, a
passage to summarise, by turns. Read, rated and chosen for on one thread that keeps to one core.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from penstock.aio.evaluate.timing import decision_time
from penstock.aio.predictor import load_predictor
from penstock.bench.machine import machine, versions

BARS_MS = {"light": (1.0, 5.0)}  # p50 and p99
EXAMPLES = """\
examples:
  python benchmarks/routing.py                            the light predictor, 2,000 decisions
  python benchmarks/routing.py --predictor light,encoder  both
  python benchmarks/routing.py --json routing.json        every figure, and the machine it was taken on
"""
KINDS = (
    """A {0} of mass {1} kg slides down a slope of {2} degrees with a coefficient of friction of 0.{1}.
Which of the following is closest to its acceleration, if the air does not matter?
A. {1} m/s^2
B. {2} m/s^2
C. 0.{2} m/s^2""",
    """{0} buys {1} boxes of pencils for ${2} each, gives a third of them to a friend, and sells the rest for
twice the price. How much is left in the end, when {1} of the pencils were broken?""",
    """Explain what this function does, and why it fails for {1}:
```python
def {0}(values, start={1}):
    total = start
    for value in values[{2}:]:
        total += value % {1}
    return total
```""",
    """Summarise this in two sentences. The council of {0} met {1} times last year and agreed on {2} of
its proposals; most of what was left concerned roads, water and the budget of the schools.""",
)
NAMES = ("Amara", "block", "crate", "Dalia", "engine", "folded", "Goran", "harvest", "inlet", "Jonas")
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PENSTOCK_THREADS"), "1"
)


def texts(count: int) -> list[str]:
    """Material of which every stretch is different."""
    kinds = [KINDS[at % len(KINDS)] for at in range(count)]
    return [kind.format(NAMES[at % len(NAMES)], at % 89 + 2, at % 53 + 3) for at, kind in enumerate(kinds)]


def measure(options: argparse.Namespace, console: Console) -> int:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found = {
        name: decision_time(load_predictor(name), texts(4 * options.decisions), options.decisions)
        for name in options.predictor.split(",")
    }
    shown = Table(title="A decision, one core, 200-token queries", title_justify="left", header_style="bold")
    for column in ("predictor", "p50", "p99", "bar p50 / p99"):
        shown.add_column(column)
    for name, taken in found.items():
        bars = BARS_MS.get(name)
        bar = "-" if bars is None else f"{bars[0]:g} / {bars[1]:g} ms"
        shown.add_row(name, f"{taken.p50:.2f} ms", f"{taken.p99:.2f} ms", bar)
    console.print(shown)
    if options.json:
        about = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join(["python", "benchmarks/routing.py", *sys.argv[1:]]),
            "machine": machine(),
            "versions": versions(),
        }
        figures = {name: asdict(taken) for name, taken in found.items()}
        options.json.write_text(json.dumps({**about, "decision_ms": figures}, indent=1) + "\n")
        console.print(f"Written to {options.json}.", markup=False)
    return 0


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/routing.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--predictor", default="light", help="some, by comma (default: %(default)s)")
    parser.add_argument("--decisions", type=int, default=2000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    if any(os.environ.get(name) != count for name, count in ONE_THREAD.items()):
        # Started anew: numpy's libraries decide when they are loaded how many threads they start.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})
    sys.exit(measure(options_of(sys.argv[1:]), Console()))
