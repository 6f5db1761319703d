"""Measure Penstock and other engines on one model and machine, by turns, and write benchmarks/RESULTS.md.

Every peer comes from PyPI into an environment of its own, made once. W1 to W4 run over HTTP with streaming,
greedy, with the end of text ignored; after each peer's run comes one of Penstock's. One server is asked at a
time and the others are stopped, unless a start takes longer than 20 s: such a server stays, idle, as long as
it leaves cores and memory alone. A peer that cannot be installed or started is a row with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from peers.figures import Measured
from peers.report import (
    DISTURBED,
    Results,
    as_json,
    bars,
    by_system,
    by_workload,
    markdown,
    table,
    write_section,
)
from peers.running import Servers
from peers.servers import ALL, PEERS, PENSTOCK, Setting
from peers.turns import OURS, turns
from rich.console import Console

from penstock.bench import ceilings
from penstock.bench.machine import machine
from penstock.bench.progress import Progress
from penstock.bench.reached import in_words
from penstock.bench.workloads import WORKLOADS, Workload
from penstock.hub import resolve
from penstock.machine import usable_cpus

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("RESULTS.md")
FEW = {"W1": 1, "W2": 8, "W3": 16, "W4": 8}  # requests with --quick
# Threads are each server's own choice: what a shell happens to say of them would hold for some of them only.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PENSTOCK_THREADS")
EXAMPLES = f"""\
peers: {", ".join(PEERS)}

examples:
  python benchmarks/peers.py                                     everything, three repeats, RESULTS.md
  python benchmarks/peers.py --quick                             fewer requests, once, no RESULTS.md
  python benchmarks/peers.py --peers llamacpp-q4_0,vllm          some peers
  python benchmarks/peers.py --workloads W1,W4 --repeat 5        some workloads, more often
  python benchmarks/peers.py --json out.json --no-write          every run as JSON, RESULTS.md left alone
  python benchmarks/peers.py --peers none                        Penstock alone
  python benchmarks/peers.py --keep logs                         keep the servers' logs in a folder
"""


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/peers.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--peers", default=",".join(PEERS), metavar="NAMES", help="which ones, or none (default: all)"
    )
    parser.add_argument("--workloads", default=",".join(ALL), metavar="NAMES", help="default: %(default)s")
    parser.add_argument("--repeat", type=int, metavar="N", help="repeats of everything (default: 3)")
    parser.add_argument(
        "--quick", action="store_true", help="fewer requests, one repeat, RESULTS.md left alone"
    )
    parser.add_argument(
        "--model", default="default", help="a GGUF file, or a model with one (default: default)"
    )
    parser.add_argument("--envs", type=Path, default=ROOT / ".bench-envs", help="where environments are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to this file")
    parser.add_argument("--no-write", action="store_true", help="leave benchmarks/RESULTS.md alone")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the servers' logs in this folder")
    options = parser.parse_args(arguments)
    options.peers = [] if options.peers == "none" else _names(options.peers)
    options.workloads = [name.upper() for name in _names(options.workloads)]
    if unknown := [name for name in options.peers if name not in PEERS]:
        parser.error(f"there is no peer {', '.join(unknown)}; the peers are {', '.join(PEERS)}, or none.")
    if unknown := [name for name in options.workloads if name not in ALL]:
        parser.error(f"there is no workload {', '.join(unknown)}; the workloads are {', '.join(ALL)}.")
    options.repeat = (1 if options.quick else 3) if options.repeat is None else options.repeat
    if options.repeat < 1:
        parser.error(f"--repeat must be at least 1, got {options.repeat}.")
    return options


def command_of(options: argparse.Namespace) -> str:
    """What was asked for, without the places on this machine where things were kept."""
    given = ["--quick"] if options.quick else []
    if options.peers != list(PEERS):
        given += ["--peers", ",".join(options.peers) or "none"]
    if options.workloads != list(ALL):
        given += ["--workloads", ",".join(options.workloads)]
    if options.repeat != (1 if options.quick else 3):
        given += ["--repeat", str(options.repeat)]
    if options.model != "default":
        given += ["--model", Path(options.model).name]
    return shlex.join(["python", "benchmarks/peers.py", *given])


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def workload_of(name: str, *, quick: bool) -> Workload:
    return replace(WORKLOADS[name], requests=FEW[name]) if quick else WORKLOADS[name]


@dataclass(frozen=True, slots=True)
class UnderWay:
    """What a terminal shows of a run, as it is whenever it is drawn."""

    said: str
    requests: int
    progress: Progress = field(default_factory=Progress)

    def __rich__(self) -> str:
        now = self.progress
        return f"{self.said}: {now.done + now.failed} of {self.requests} answers, {now.tokens} tokens"


def measure(options: argparse.Namespace, results: Results, servers: Servers, console: Console) -> None:
    """Every turn; `results` has what is done, whenever this is interrupted."""
    able = {name: PEERS[name].workloads for name in options.peers}
    order = turns(able, options.workloads, options.repeat)
    for number, turn in enumerate(order, 1):
        said = f"[{number}/{len(order)}] {turn.workload}, repeat {turn.repeat + 1}, {turn.system}"
        server = servers.ready(turn.system)
        if server is None:
            reason = servers.missing.get(turn.system) or servers.failures[-1]
            console.print(f"{said}: cannot be measured: {reason}", style="red", markup=False)
            continue
        results.versions[turn.system] = server.launch.version
        workload = workload_of(turn.workload, quick=options.quick)
        jobs = workload.jobs(repeat=turn.prompts, salt="peers")
        server.warm(f"{turn.workload}/{turn.prompts}")
        under_way = UnderWay(said, len(jobs))
        with console.status(under_way):
            run, others = server.run(workload, jobs, turn.repeat, under_way.progress)
        measured = Measured(turn.system, run, others)
        results.measured.append(measured)
        if options.json:
            write_json(options.json, results)
        servers.rest(turn.system)
        console.print(f"{said}: {summary(measured)}", markup=False, style="red" if measured.problem else "")


def summary(measured: Measured) -> str:
    run = measured.run
    if measured.problem:
        return f"not counted: {measured.problem}"
    started = f", started in {run.startup_seconds:.1f} s" if run.startup_seconds is not None else ""
    disturbed = f", beside other work on {measured.others:.1f} cores" if measured.others > DISTURBED else ""
    return (
        f"{run.output_tokens_per_second:.1f} tok/s, decode {run.decode_tokens_per_second or 0:.1f}, "
        f"TTFT p50 {(run.ttft.p50 or 0) * 1e3:.0f} ms, {run.wall_seconds:.1f} s, "
        f"peak {(run.peak_memory_bytes or 0) / 1e6:.0f} MB{started}{disturbed}"
    )


def write_json(path: Path, results: Results) -> None:
    path.write_text(json.dumps(as_json(results), indent=1) + "\n")


def show(results: Results, console: Console) -> None:
    for rows, title in (
        (by_workload(results), f"Medians of {results.repeats} repeats (range)"),
        (by_system(results), "Systems"),
        (bars(results), "Penstock beside others"),
    ):
        console.print(table(rows, title))
    for problem in results.problems():
        console.print(f"not counted: {problem}", style="yellow", markup=False)
    if disturbance := results.disturbance():
        console.print(disturbance, style="yellow", markup=False)


def interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    options = options_of(arguments)
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 180)
    signal.signal(signal.SIGTERM, interrupted)
    for name in THREADS:
        os.environ.pop(name, None)
    model = resolve(options.model).path
    if model.suffix != ".gguf":
        console.print(f"{model} is no GGUF file, which every engine can start from; name one.", style="red")
        return 2
    host = machine()
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command_of(options),
        "machine": host,
        "python": platform.python_version(),
        "model": model.name,
        "load_average": os.getloadavg()[0],
    }
    console.print(
        f"{host['processor']}, {host['cores']} cores, {host['memory_gib']} GiB, {model.name}", markup=False
    )
    if (others := os.getloadavg()[0]) > 0.5:
        console.print(
            f"Something else is running here (load {others:.1f}): figures are rough.", style="yellow"
        )
    limits = ceilings.measure(threads=usable_cpus())
    console.print(in_words(limits), markup=False)
    systems = {OURS: PENSTOCK, **{name: PEERS[name] for name in options.peers}}
    results = Results(about, limits, systems, options.workloads, options.repeat)
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        setting = Setting(model, options.envs.resolve(), folder, lambda text: console.print(f"  {text}"))
        servers = Servers(
            setting,
            systems,
            starts=results.starts,
            missing=results.missing,
            failures=results.failures,
        )
        complete, began = False, time.monotonic()
        try:
            measure(options, results, servers, console)
            complete = True
        except KeyboardInterrupt:
            console.print("\nInterrupted; this is what was measured.")
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # nothing may interrupt the stopping
            servers.stop()
        console.print(f"{(time.monotonic() - began) / 60:.1f} minutes")
    written: list[Path] = []
    if options.json:
        write_json(options.json, results)
        written.append(options.json)
    if complete and not options.quick and not options.no_write:
        write_section(RESULTS, markdown(results))
        written.append(RESULTS)
    show(results, console)
    for path in written:
        console.print(f"Written to {path}.", markup=False)
    if not complete:
        return 130
    return 1 if results.missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
