"""What is asked of a server: prompts of random token ids, how many tokens each answer has, and when.

Lengths and moments depend on the seed alone, token ids on the salt and the repeat too: every repeat
asks for the same work, and none finds the prompts of another in a prefix cache.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.bench.arrivals import ARRIVALS, BURST_SIZE, check_arrivals
from penstock.bench.trace import TraceLine, read_trace
from penstock.errors import ConfigError

# Plain pieces of text in the vocabularies in use: special tokens are below or far above.
LOWEST_ID, HIGHEST_ID = 1000, 40000


@dataclass(frozen=True, slots=True)
class Job:
    """One request: a prompt, the number of tokens to generate, and in an open loop its moment."""

    prompt: list[int]
    output_len: int
    at: float | None = None  # seconds after the start; None: when a client is free
    text: str | None = None  # in place of the ids, where a trace has texts; its tokens the server counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """With a `rate` or a `trace` an open loop; with `clients` a closed one; else all requests at once."""

    name: str
    requests: int
    input_len: tuple[int, int]  # tokens, shortest and longest
    output_len: tuple[int, int]
    clients: int | None = None  # each sends its next request after its last answer; None: all at once
    prefix_len: int = 0  # tokens that all prompts begin with, beside input_len
    rate: float | None = None  # requests/s
    process: str = "poisson"  # of ARRIVALS, with a rate
    burst_size: int = BURST_SIZE
    trace: tuple[TraceLine, ...] = ()

    @property
    def arrivals(self) -> str:
        if self.trace:
            return "trace"
        if self.rate is not None:
            return self.process
        return "at once" if self.clients is None else "closed"

    @property
    def offered_rate(self) -> float | None:
        """Requests/s of an open loop; a trace's are its own over its length."""
        if not self.trace:
            return self.rate
        length = self.trace[-1].at - self.trace[0].at
        return (len(self.trace) - 1) / length if length else float(len(self.trace))

    def jobs(
        self, *, repeat: int = 0, seed: int = 1, salt: str = "", vocab_size: int | None = None
    ) -> list[Job]:
        lengths = random.Random(seed)
        name = f"{self.name}/{seed}/{salt}/{repeat}"
        tokens = _Tokens(name, vocab_size)
        if self.trace:
            return [_traced(line, tokens, name, vocab_size) for line in self.trace]
        prefix = tokens.draw(self.prefix_len)
        jobs = []
        for _ in range(self.requests):
            input_len = lengths.randint(*self.input_len)
            jobs.append(Job(prefix + tokens.draw(input_len), lengths.randint(*self.output_len)))
        if self.rate is None:
            return jobs
        moments = ARRIVALS[self.process](self.requests, self.rate, self.burst_size, random.Random(seed))
        return [replace(job, at=moment) for job, moment in zip(jobs, moments, strict=True)]


class _Tokens:
    """Random token ids that a vocabulary has."""

    def __init__(self, seed: str, vocab_size: int | None) -> None:
        self._chance = random.Random(seed)
        self._highest = HIGHEST_ID if vocab_size is None else min(HIGHEST_ID, vocab_size - 1)
        self._lowest = min(LOWEST_ID, self._highest)

    def draw(self, count: int) -> list[int]:
        return [self._chance.randint(self._lowest, self._highest) for _ in range(count)]


def _traced(line: TraceLine, tokens: _Tokens, name: str, vocab_size: int | None) -> Job:
    if isinstance(line.prompt, str):
        return Job([], line.output_len, line.at, line.prompt)
    if line.prompt is not None:
        return Job(line.prompt, line.output_len, line.at)
    # Seeded by the prefix itself: shorter ones of the same id begin longer ones.
    prefix = _Tokens(f"{name}/prefix/{line.prefix_id}", vocab_size).draw(line.prefix_len)
    return Job(prefix + tokens.draw(line.input_len or 0), line.output_len, line.at)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(name="W1", requests=3, input_len=(128, 128), output_len=(128, 128), clients=1),
        Workload(name="W2", requests=64, input_len=(32, 256), output_len=(32, 256)),
        Workload(name="W3", requests=64, input_len=(128, 128), output_len=(64, 64), clients=16),
        Workload(name="W4", requests=32, input_len=(32, 32), output_len=(32, 32), prefix_len=512),
    )
}
DESCRIPTIONS = {
    "W1": "one client, 3 requests one after another, 128 tokens in, 128 out",
    "W2": "64 requests at once, 32-256 tokens in, 32-256 out",
    "W3": "16 clients, 64 requests, 128 tokens in, 64 out",
    "W4": "32 requests at once, 512 shared + 32 own tokens in, 32 out",
}


def choose(
    name: str | None,
    *,
    requests: int | None = None,
    input_len: str | None = None,
    output_len: str | None = None,
    prefix_len: int | None = None,
    clients: int | None = None,
    rate: float | None = None,
    arrivals: str | None = None,
    burst_size: int | None = None,
) -> Workload:
    """A workload by its name, with what was given beside the name changed; without a name, W2 changed."""
    known = WORKLOADS.get((name or "W2").upper())
    if known is None:
        names = ", ".join(WORKLOADS)
        raise ConfigError(
            f"There is no workload {name!r}; choose one of {names} or leave it out and give lengths."
        )
    changes: dict[str, object] = {}
    if requests is not None:
        changes["requests"] = _at_least_one("requests", requests)
    if clients is not None:
        changes["clients"] = _at_least_one("clients", clients)
    if prefix_len is not None:
        changes["prefix_len"] = prefix_len
    if input_len is not None:
        changes["input_len"] = length_range("input-len", input_len)
    if output_len is not None:
        changes["output_len"] = length_range("output-len", output_len)
    if rate is not None:
        if clients is not None:
            raise ConfigError(
                "--rate sends requests whether or not answers have come, --clients waits for them; give one."
            )
        changes |= {
            "rate": rate,
            "clients": None,
            "process": arrivals or "poisson",
            "burst_size": burst_size or BURST_SIZE,
        }
        check_arrivals(str(changes["process"]), rate, BURST_SIZE if burst_size is None else burst_size)
    elif arrivals is not None or burst_size is not None:
        raise ConfigError("--arrivals and --burst-size say how requests come at a --rate; give that too.")
    if not changes:
        return known
    return replace(known, name=f"{known.name}*" if name else "custom", **changes)  # type: ignore[arg-type]


def traced(path: str, *, speed: float = 1.0) -> Workload:
    """The requests of a trace file, at their moments."""
    lines = read_trace(path, speed=speed)
    inputs = [line.prefix_len + (line.input_len or len(line.prompt or "")) for line in lines]
    outputs = [line.output_len for line in lines]
    return Workload(
        name=Path(path).stem,
        requests=len(lines),
        input_len=(min(inputs), max(inputs)),
        output_len=(min(outputs), max(outputs)),
        trace=lines,
    )


def length_range(name: str, text: str) -> tuple[int, int]:
    """'128' is always 128 tokens, '32-256' is uniform between the two."""
    first, dash, last = text.partition("-")
    try:
        low, high = int(first), int(last if dash else first)
    except ValueError:
        low, high = 0, 0
    if not 1 <= low <= high:
        raise ConfigError(
            f"--{name} must be a number of tokens such as 128, or a range such as 32-256, got {text!r}."
        )
    return low, high


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise ConfigError(f"--{name} must be at least 1, got {value}.")
    return value
