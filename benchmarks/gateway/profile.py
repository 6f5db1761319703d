"""Where a gateway's processes spend their time, by py-spy from PyPI: it samples from outside."""

from __future__ import annotations

import functools
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .environments import environment
from .gateways import Gateway
from .measures import Bench, paced_streams, unpaced_streams, unstreamed

RATE = 400  # samples a second
SHOWN = 35
PHASES: dict[str, Callable[[Bench], None]] = {
    "unstreamed": unstreamed,
    "streams": unpaced_streams,
    "paced streams": paced_streams,
}


def profile(bench: Bench, cache: Path, folder: Path, console: Console) -> None:
    """Run the phases for each gateway alone, sampled; print the functions with most time of their own."""
    binaries, _ = environment(
        cache, "py-spy", ("py-spy",), lambda text: console.print(f"  {text}", markup=False)
    )
    for gateway in bench.gateways:
        alone = replace(bench, gateways=[gateway], results={})
        for name, phase in PHASES.items():
            stacks = _sampled(binaries / "py-spy", gateway, folder, functools.partial(phase, alone))
            console.print(_table(f"{gateway.name}, {name}", stacks))


def _sampled(
    py_spy: Path, gateway: Gateway, folder: Path, work: Callable[[], None]
) -> Counter[tuple[str, ...]]:
    output = folder / "stacks.txt"
    # Only who holds the interpreter's lock is sampled: waiting threads would fill the table.
    asked = f"--subprocesses --gil --nolineno --full-filenames --format raw --rate {RATE} --duration 3600"
    target = ["--pid", str(gateway.process.popen.pid), "--output", str(output)]
    command = [str(py_spy), "record", *asked.split(), *target]
    sampler = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(1.0)
        if sampler.poll() is not None:
            raise RuntimeError(f"py-spy could not sample: {sampler.stderr.read() if sampler.stderr else ''}")
        work()
    finally:
        sampler.send_signal(2)
        sampler.wait(30)
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in output.read_text().splitlines():
        frames, _, count = line.rpartition(" ")
        stacks[tuple(frames.split(";"))] += int(count)
    return stacks


def _table(title: str, stacks: Counter[tuple[str, ...]]) -> Table:
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for frames, count in stacks.items():
        own[_short(frames[-1])] += count
        for frame in {_short(frame) for frame in frames}:
            within[frame] += count
    total = sum(own.values()) or 1
    shown = Table(title=f"{title}: {total:,} samples", title_justify="left", header_style="bold")
    for column in ("own %", "with callees %"):
        shown.add_column(column, justify="right")
    shown.add_column("function")
    for frame, count in own.most_common(SHOWN):
        shown.add_row(f"{count / total:.1%}", f"{within[frame] / total:.1%}", frame)
    return shown


def _short(frame: str) -> str:
    """`function (a/very/long/path/module.py)` with the last three parts of the path."""
    name, _, path = frame.partition(" (")
    return f"{name} ({'/'.join(path.rstrip(')').split('/')[-3:])})" if path else name
