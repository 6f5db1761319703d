"""Show what a full house is like: real engines behind `penstock serve`, asked for more than they can do.

Two scenarios, each beside its bar:

tenants   One tenant floods at ten times its limit; what happens to the time to first token (TTFT) of another,
          with the flood and without, by turns.
overload  Five times what the engines can do, nine tenths of it batch work: goodput against the peak, how fast
          refusals come, and the TTFT of interactive requests against that of an empty house.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import aiohttp
import yaml
from gateway.gateways import HOST, create_key, free_port
from gateway.processes import Process
from rich.console import Console
from rich.table import Table

from penstock.bench.machine import machine, versions
from penstock.bench.statistics import percentile

EXAMPLES = """\
examples:
  python benchmarks/overload.py                        both scenarios, about ten minutes
  python benchmarks/overload.py --only tenants         one of them
  python benchmarks/overload.py --replicas 2           two engines behind one name
  python benchmarks/overload.py --json out.json        every request, as JSON
"""
MODEL = "default"
START_SECONDS = 180.0
WORDS = ("gate", "sluice", "river", "wheel", "pipe", "stone", "valley", "rain", "mill", "bridge", "weir")
SCENARIOS = ("tenants", "overload")


@dataclass(frozen=True, slots=True)
class Sizes:
    seconds: float = 60.0  # of each part of a scenario
    repeats: int = 2
    replicas: int = 1
    prompt_words: int = 64  # about 100 tokens with the template around them
    max_tokens: int = 12
    max_running: int = 8
    max_step_tokens: int = 32  # a prompt takes several steps, so that waiting for one is a small part of it
    queue: int = 32  # requests that may wait


@dataclass(slots=True)
class Outcome:
    """What became of one request. Seconds on one clock."""

    tenant: str
    sent: float
    status: int | None = None
    tokens_at: list[float] = field(default_factory=list)
    ended: float | None = None
    error: str | None = None
    code: str | None = None

    @property
    def ttft(self) -> float | None:
        return self.tokens_at[0] - self.sent if self.tokens_at else None

    @property
    def refused(self) -> bool:
        return self.status in (429, 503)

    @property
    def waited_in_vain(self) -> bool:
        """Accepted, and given up before it had a place: its deadline passed, or others took its place."""
        return self.refused and (self.code == "deadline_exceeded" or "took its place" in (self.error or ""))


class House:
    """A running server and the keys of its tenants."""

    def __init__(self, process: Process, url: str, keys: dict[str, str], sizes: Sizes) -> None:
        self.process = process
        self.url = url
        self.keys = keys
        self.sizes = sizes
        self._random = random.Random(4)

    async def ask(self, session: aiohttp.ClientSession, tenant: str) -> Outcome:
        words = " ".join(self._random.choices(WORDS, k=self.sizes.prompt_words))
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": words}],
            "max_tokens": self.sizes.max_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        headers = {"Authorization": f"Bearer {self.keys[tenant]}"}
        outcome = Outcome(tenant, time.perf_counter())
        try:
            async with session.post(
                f"{self.url}/v1/chat/completions", json=body, headers=headers
            ) as response:
                outcome.status = response.status
                if response.status != 200:
                    outcome.error = (await response.text())[:300]
                    with contextlib.suppress(ValueError, KeyError):
                        outcome.code = json.loads(outcome.error)["error"]["code"]
                else:
                    await _read(response, outcome)
        except (aiohttp.ClientError, TimeoutError) as error:
            outcome.error = f"{type(error).__name__}: {error}"
        outcome.ended = time.perf_counter()
        return outcome


async def _read(response: aiohttp.ClientResponse, outcome: Outcome) -> None:
    async for line in response.content:
        if line.startswith(b'data: {"error"'):
            outcome.error = line[6:300].decode(errors="replace")
        elif line.startswith(b"data: [DONE]"):
            return
        elif line.startswith(b"data:"):
            choices = json.loads(line[5:])["choices"]
            if choices and choices[0]["delta"].get("content"):
                outcome.tokens_at.append(time.perf_counter())
    outcome.error = outcome.error or "The stream ended without [DONE]."


async def arrivals(
    house: House, session: aiohttp.ClientSession, tenant: str, rate: float, seconds: float
) -> list[Outcome]:
    """Requests at `rate` a second (Poisson), whatever becomes of the earlier ones. Waits for all of them."""
    due, end = time.perf_counter(), time.perf_counter() + seconds
    drawn = random.Random(f"{tenant} {rate}")
    tasks: list[asyncio.Task[Outcome]] = []
    while (due := due + drawn.expovariate(rate)) < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(house.ask(session, tenant)))
    return list(await asyncio.gather(*tasks))


async def clients(
    house: House, session: aiohttp.ClientSession, tenant: str, count: int, seconds: float
) -> list[Outcome]:
    """Each client asks again as soon as it is answered."""
    end = time.perf_counter() + seconds
    outcomes: list[Outcome] = []

    async def client() -> None:
        while time.perf_counter() < end:
            outcomes.append(await house.ask(session, tenant))

    await asyncio.gather(*(client() for _ in range(count)))
    return outcomes


def goodput(outcomes: Sequence[Outcome], start: float, end: float) -> float:
    """Tokens a second that arrived between `start` and `end`, of requests that did not fail."""
    tokens = sum(start <= at < end for each in outcomes if each.error is None for at in each.tokens_at)
    return tokens / (end - start)


def ttfts(outcomes: Sequence[Outcome]) -> list[float]:
    return [each.ttft for each in outcomes if each.ttft is not None]


def p99(values: Sequence[float]) -> float:
    return percentile(values, 99) or 0.0


@dataclass(slots=True)
class Report:
    """Rows of the table: what, the bar, what was measured, whether it is good enough."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    outcomes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, scenario: str, title: str, shown: str, *, bar: str = "", met: bool | None = None) -> None:
        self.rows.append({"scenario": scenario, "figure": title, "measured": shown, "bar": bar, "met": met})

    def keep(self, part: str, outcomes: Sequence[Outcome]) -> None:
        self.outcomes.setdefault(part, []).extend(asdict(each) for each in outcomes)


async def peak_of(house: House, say: Callable[[str], None]) -> tuple[float, float]:
    """Tokens and requests a second with all places taken and somebody always waiting."""
    sizes = house.sizes
    count = 2 * sizes.max_running * sizes.replicas
    async with _session() as session:
        await clients(house, session, "batch", 2, 3.0)
        began = time.perf_counter()
        outcomes = await clients(house, session, "batch", count, sizes.seconds)
    start = began + sizes.seconds / 6  # until all places are taken
    tokens = goodput(outcomes, start, began + sizes.seconds)
    say(f"  peak: {tokens:.1f} tokens/s, {tokens / sizes.max_tokens:.2f} requests/s")
    return tokens, tokens / sizes.max_tokens


async def tenants(house: House, peak: float, report: Report, say: Callable[[str], None]) -> None:
    sizes, rate = house.sizes, peak / 4
    alone: list[Outcome] = []
    beside: list[Outcome] = []
    flood: list[Outcome] = []
    async with _session() as session:
        for repeat in range(sizes.repeats):
            say(f"  repeat {repeat + 1} of {sizes.repeats}: alone, then beside a flood")
            alone += await arrivals(house, session, "quiet", rate, sizes.seconds)
            both = await asyncio.gather(
                arrivals(house, session, "quiet", rate, sizes.seconds),
                arrivals(house, session, "flood", 10 * rate, sizes.seconds),
            )
            beside += both[0]
            flood += both[1]
    report.keep("alone", alone)
    report.keep("beside the flood", beside)
    report.keep("flood", flood)
    before, after = p99(ttfts(alone)), p99(ttfts(beside))
    ratio = after / before if before else 0.0
    failed = sum(each.error is not None for each in (*alone, *beside))
    report.add("tenants", "the quiet tenant's TTFT p99, alone", f"{before * 1000:,.0f} ms of {len(alone)}")
    report.add("tenants", "beside the flood", f"{after * 1000:,.0f} ms of {len(beside)}")
    report.add("tenants", "ratio", f"{ratio:.2f}", bar="<= 1.5", met=0 < ratio <= 1.5)
    report.add("tenants", "quiet requests that failed", str(failed), bar="0", met=failed == 0)
    refused = sum(each.refused for each in flood)
    report.add("tenants", "flood: sent, refused", f"{len(flood)}, {refused}")


async def overload(
    house: House, peak_tokens: float, peak: float, report: Report, say: Callable[[str], None]
) -> None:
    sizes, rate = house.sizes, peak / 10
    async with _session() as session:
        say("  interactive requests in an empty house")
        empty = await arrivals(house, session, "interactive", rate, 2 * sizes.seconds)
        say("  interactive requests, and batch work at five times what the engines can do")
        began = time.perf_counter()
        urgent, batch = await asyncio.gather(
            arrivals(house, session, "interactive", rate, 2 * sizes.seconds),
            arrivals(house, session, "batch", 5 * peak - rate, 2 * sizes.seconds),
        )
    for part, outcomes in (("empty house", empty), ("interactive", urgent), ("batch", batch)):
        report.keep(part, outcomes)
    start = began + sizes.seconds / 3
    share = goodput([*urgent, *batch], start, began + 2 * sizes.seconds) / peak_tokens
    before, after = p99(ttfts(empty)), p99(ttfts(urgent))
    ratio = after / before if before else 0.0
    at_once = [each for each in batch if each.refused and not each.waited_in_vain]
    refusals = [each.ended - each.sent for each in at_once if each.ended is not None]
    in_vain = sum(each.waited_in_vain for each in batch)
    lost = sum(each.error is not None for each in urgent)
    report.add("overload", "goodput against the peak", f"{share:.1%}", bar=">= 95%", met=share >= 0.95)
    report.add(
        "overload",
        f"refusals, p99 of {len(refusals)}",
        f"{p99(refusals) * 1000:,.1f} ms",
        bar="<= 50 ms",
        met=bool(refusals) and p99(refusals) <= 0.05,
    )
    report.add("overload", "interactive TTFT p99, empty house", f"{before * 1000:,.0f} ms of {len(empty)}")
    report.add("overload", "the same in the overload", f"{after * 1000:,.0f} ms of {len(urgent)}")
    report.add("overload", "ratio", f"{ratio:.2f}", bar="<= 2", met=0 < ratio <= 2)
    report.add("overload", "interactive requests lost", str(lost), bar="0", met=lost == 0)
    answered = sum(each.error is None for each in batch)
    shown = f"{len(batch)}, {answered}, {len(refusals)}, {in_vain}"
    report.add("overload", "batch: sent, answered, refused at once, waited in vain", shown)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=600), connector=aiohttp.TCPConnector(limit=0)
    )


@contextlib.contextmanager
def house(sizes: Sizes, folder: Path, limits: dict[str, dict[str, Any]]) -> Iterator[House]:
    """A server with engines of its own and these tenants."""
    port, cores = free_port(), len(os.sched_getaffinity(0))
    config = {
        "host": HOST,
        "port": port,
        "state_dir": str(folder / "state"),
        "models": {
            MODEL: {
                "backends": [
                    {
                        "engine": "default",
                        "replicas": sizes.replicas,
                        "threads": max(1, (cores - 1) // sizes.replicas),
                        "max_running": sizes.max_running,
                        "max_step_tokens": sizes.max_step_tokens,
                        "max_model_len": 1024,
                    }
                ]
            }
        },
        "tenants": limits,
        "queue": {"max_requests": sizes.queue, "wait": 30},
    }
    path = folder / "penstock.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    keys = {tenant: create_key(path, tenant) for tenant in limits}
    command = [sys.executable, "-m", "penstock", "serve", "--config", str(path)]
    process = Process(command, cores=os.sched_getaffinity(0), log=folder / "serve.log", env={"NO_COLOR": "1"})
    try:
        running = House(process, f"http://{HOST}:{port}", keys, sizes)
        asyncio.run(_ready(running))
        yield running
    finally:
        process.stop()


async def _ready(running: House) -> None:
    deadline = time.monotonic() + START_SECONDS
    async with _session() as session:
        while True:
            outcome = await running.ask(session, next(iter(running.keys)))
            if outcome.error is None:
                return
            if running.process.popen.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"The server did not start ({outcome.error}):\n{running.process.last_words()}"
                )
            await asyncio.sleep(0.1)


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
        flood: dict[str, int] = {"requests_per_minute": max(1, round(requests / 4 * 60))}
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
