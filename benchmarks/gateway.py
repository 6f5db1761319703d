"""Measure Penstock's front door, and LiteLLM's proxy beside it, against a mock upstream on this machine.

The gateway under test has one core to itself; the mock upstream and the load generator share another.
LiteLLM comes from PyPI into an environment of its own, made once. Figures per CPU-second count every process
of a gateway, user and system time. Added latency is what a request takes through the gateway, less what it
takes straight to the mock, in the same run and by turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from gateway.environments import EnvironmentFailedError, cache_folder
from gateway.figures import Results
from gateway.gateways import Gateway, NotStartedError, Setting, billed, start
from gateway.measures import ONCE, PHASES, QUICK, REPEATED, Bench, Sizes, warm
from gateway.mock import COMPLETION_TOKENS
from gateway.processes import Cores, Load, Mock, Process
from gateway.profile import profile
from gateway.report import as_json, show_problems, table
from rich.console import Console

from penstock.bench.machine import machine, versions

LEDGER_SECONDS = 5.0  # how long the last entries may take
EXAMPLES = """\
examples:
  python benchmarks/gateway.py                                   everything, about 20 minutes
  python benchmarks/gateway.py --quick --peers none              Penstock alone, a minute
  python benchmarks/gateway.py --only unstreamed,streams         some phases
  python benchmarks/gateway.py --requests 100000 --only memory   memory alone
  python benchmarks/gateway.py --peers unmeasured --only unstreamed,paced   what metrics and console cost
  python benchmarks/gateway.py --profile --quick --peers none    where Penstock's processes spend their time
  python benchmarks/gateway.py --json out.json                   every repeat and distribution, as JSON
"""


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/gateway.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured to this file")
    parser.add_argument(
        "--requests", type=int, metavar="N", help="requests of the memory phase (default: 100000)"
    )
    parser.add_argument(
        "--peer-requests",
        type=int,
        metavar="N",
        help="the same for other gateways, which are slower (default: 10000)",
    )
    parser.add_argument("--repeats", type=int, metavar="N", help="repeats of the other phases (default: 3)")
    parser.add_argument(
        "--only",
        default=",".join(PHASES),
        metavar="PHASES",
        help=f"some of {','.join(PHASES)} (default: all)",
    )
    parser.add_argument(
        "--peers",
        default="litellm",
        choices=("litellm", "unmeasured", "none"),
        help="what else to measure; unmeasured: Penstock without metrics of requests (default: litellm)",
    )
    parser.add_argument(
        "--skip-penstock", action="store_true", help="measure the peers alone, to check the benchmark itself"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter repeats: rough figures in a minute"
    )
    parser.add_argument(
        "--profile", action="store_true", help="show where Penstock spends its time, with py-spy"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=cache_folder(),
        help="where environments are kept (default: %(default)s)",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep configurations and logs in this folder"
    )
    options = parser.parse_args(arguments)
    options.only = [name.strip() for name in options.only.split(",")]
    if unknown := set(options.only) - set(PHASES):
        parser.error(f"there is no phase {', '.join(sorted(unknown))}; the phases are {', '.join(PHASES)}.")
    if any(
        count is not None and count < 1
        for count in (options.requests, options.peer_requests, options.repeats)
    ):
        parser.error("--requests, --peer-requests and --repeats must be at least 1.")
    return options


def sizes_of(options: argparse.Namespace) -> Sizes:
    chosen = {name: getattr(options, name) for name in ("requests", "peer_requests", "repeats")}
    given = {name: value for name, value in chosen.items() if value is not None}
    return dataclasses.replace(QUICK if options.quick else Sizes(), **given)


def measure(options: argparse.Namespace, folder: Path, running: list[Process], console: Console) -> int:
    sizes, cores = sizes_of(options), Cores.usable()
    host = machine()
    about: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "benchmarks/gateway.py", *sys.argv[1:]]),
        "machine": host,
        "versions": {**versions()},
        "load_average": os.getloadavg()[0],
        "cores": dataclasses.asdict(cores),
        "sizes": dataclasses.asdict(sizes),
    }
    console.print(
        f"{host['processor']}, {host['cores']} cores, {host['memory_gib']} GiB, {host['system']}, "
        f"Python {about['versions']['python']}, {about['date']}",
        markup=False,
    )
    where = f"gateways on core {cores.gateway}, mock upstream and load generator on core {cores.others}"
    console.print(where if cores.apart else "[yellow]There is one core only: everything shares it.[/yellow]")

    if (others := os.getloadavg()[0]) > 0.5:
        console.print(
            f"[yellow]Something else is running here (load {others:.1f}): figures are rough.[/yellow]"
        )

    mock = Mock(cores.others, folder)
    running.append(mock.process)
    load = Load(cores.others, folder)
    running.append(load.process)
    setting = Setting(folder, options.cache, mock.urls, lambda text: console.print(f"  {text}", markup=False))
    names = ([] if options.skip_penstock else ["penstock"]) + (
        [] if options.peers == "none" else [options.peers]
    )
    gateways, missing = started(names, setting, cores, running, console)
    about["versions"].update({each.name: each.launch.version for each in gateways})

    bench = Bench(mock, load, gateways, sizes, console.print)
    for gateway in gateways:
        bench.record(gateway.name, start=gateway.start_seconds)
    console.print("warm-up")
    warm(bench)
    if options.profile:
        profile(bench, options.cache, folder, console)
    else:
        run_phases(bench, options.only)
        if ceiling := bench.results["direct"].summary("requests_per_second"):
            shared = "on a core shared with the load"
            console.print(f"\nThe mock, straight: {ceiling['median']:,.0f} requests/s {shared}.")
        results: dict[str, Results] = {each.name: bench.results[each.name] for each in gateways}
        titles = ", ".join(f"{each.name} {each.launch.version}" for each in gateways)
        show_ledger(bench, folder, console)
        console.print(table(results, missing, f"{titles}: medians of {sizes.repeats} (range)"))
    show_problems(console, bench.results)
    if options.json:
        options.json.write_text(json.dumps(as_json(bench.results, missing, about), indent=1) + "\n")
        console.print(f"Written to {options.json}.", markup=False)
    return 1 if missing else 0


def run_phases(bench: Bench, only: Sequence[str]) -> None:
    if not bench.gateways:
        return
    for repeat in range(bench.sizes.repeats):
        for name in (name for name in REPEATED if name in only):
            bench.say(f"repeat {repeat + 1} of {bench.sizes.repeats}: {name}")
            REPEATED[name](bench)
    for name in (name for name in ONCE if name in only):
        bench.say(name)
        ONCE[name](bench)


def show_ledger(bench: Bench, folder: Path, console: Console) -> None:
    """Hold Penstock's ledger against what was delivered: the features that are said to be on really are."""
    if "penstock" not in bench.results:
        return
    sent = bench.results["penstock"].delivered
    wanted = (sent.requests + 1, sent.tokens + COMPLETION_TOKENS)  # with the one that showed it had started
    deadline = time.monotonic() + LEDGER_SECONDS
    while (found := billed(folder / "penstock.yaml")) != wanted and time.monotonic() < deadline:
        time.sleep(0.5)
    console.print(
        f"Delivered {wanted[0]:,} answers and {wanted[1]:,} tokens; "
        f"Penstock's ledger has {found[0]:,} and {found[1]:,}.",
        style="green" if found == wanted else "red",
    )


def started(
    names: list[str], setting: Setting, cores: Cores, running: list[Process], console: Console
) -> tuple[list[Gateway], dict[str, str]]:
    """The gateways that came up, and why the others did not."""
    gateways: list[Gateway] = []
    missing: dict[str, str] = {}
    for name in names:
        console.print(f"starting {name}")
        try:
            gateway = start(name, setting, cores, running.append)
        except (NotStartedError, EnvironmentFailedError) as error:
            missing[name] = str(error)
            console.print(f"  {name} did not start: {error}", style="red", markup=False)
            continue
        if gateway.launch.note:
            console.print(f"  {gateway.launch.note}", style="yellow", markup=False)
        gateways.append(gateway)
    return gateways, missing


def interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    options = options_of(arguments)
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 140)
    signal.signal(signal.SIGTERM, interrupted)
    running: list[Process] = []
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return measure(options, folder, running, console)
        except KeyboardInterrupt:
            console.print("\nInterrupted; stopping what was started.")
            return 130
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # nothing may interrupt the stopping
            for process in reversed(running):
                process.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
