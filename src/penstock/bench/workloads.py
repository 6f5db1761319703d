"""What is asked of a server: prompts of random token ids, and how many tokens each answer has.

Lengths depend on the seed alone, token ids on the salt and the repeat too: every repeat asks for
the same work, and none finds the prompts of another in a prefix cache.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from penstock.errors import ConfigError

# Plain pieces of text in the vocabularies in use: special tokens are below or far above.
LOWEST_ID, HIGHEST_ID = 1000, 40000


@dataclass(frozen=True, slots=True)
class Job:
    """One request: a prompt, and the number of tokens to generate."""

    prompt: list[int]
    output_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    name: str
    requests: int
    input_len: tuple[int, int]  # tokens, shortest and longest
    output_len: tuple[int, int]
    clients: int | None = None  # each sends its next request after its last answer; None: all at once
    prefix_len: int = 0  # tokens that all prompts begin with, beside input_len

    def jobs(
        self, *, repeat: int = 0, seed: int = 1, salt: str = "", vocab_size: int | None = None
    ) -> list[Job]:
        lengths = random.Random(seed)
        tokens = random.Random(f"{self.name}/{seed}/{salt}/{repeat}")
        highest = HIGHEST_ID if vocab_size is None else min(HIGHEST_ID, vocab_size - 1)
        lowest = min(LOWEST_ID, highest)

        def draw(count: int) -> list[int]:
            return [tokens.randint(lowest, highest) for _ in range(count)]

        prefix = draw(self.prefix_len)
        jobs = []
        for _ in range(self.requests):
            input_len = lengths.randint(*self.input_len)
            jobs.append(Job(prefix + draw(input_len), lengths.randint(*self.output_len)))
        return jobs


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
    if not changes:
        return known
    return replace(known, name=f"{known.name}*" if name else "custom", **changes)  # type: ignore[arg-type]


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
