"""The workloads G1 to G5. Lengths are the same in every repeat, token ids are other ones: nothing is cached.

The lengths of G1 are drawn by Python's `random`, seeded with 0: for each of the 256 requests its prompt's
length and then its answer's, both by `randint(100, 1024)`. That makes 148,194 prompt tokens and 140,797
output tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from penstock.engine.request import Request, SamplingParams

TEMPERATURE = 0.6  # of G1; the others are greedy


@dataclass(frozen=True, slots=True)
class Job:
    prompt: int  # tokens, the shared ones included
    output: int
    shared: int = 0  # tokens at the beginning that all of the workload have in common


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    what: str
    unit: str
    jobs: tuple[Job, ...]
    temperature: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        return sum(job.prompt for job in self.jobs)

    @property
    def output_tokens(self) -> int:
        return sum(job.output for job in self.jobs)

    def requests(self, vocabulary: int, *, salt: str, jobs: tuple[Job, ...] | None = None) -> list[Request]:
        """Random token ids, other ones for another `salt`."""
        source = random.Random(f"{self.name} {salt}")
        ids = range(vocabulary)
        shared = source.choices(ids, k=max(job.shared for job in self.jobs))
        made = []
        for number, job in enumerate(jobs or self.jobs):
            prompt = shared[: job.shared] + source.choices(ids, k=job.prompt - job.shared)
            params = SamplingParams(
                max_tokens=job.output, temperature=self.temperature, ignore_eos=True, seed=number
            )
            made.append(Request(id=f"{self.name}-{salt}-{number}", prompt=prompt, params=params))
        return made


def many(requests: int, least: int, most: int) -> Workload:
    source = random.Random(0)
    jobs = tuple(Job(source.randint(least, most), source.randint(least, most)) for _ in range(requests))
    what = (
        f"{requests} requests at once, prompts and outputs {least}-{most} tokens, temperature {TEMPERATURE}"
    )
    return Workload("G1", what, "tok/s", jobs, TEMPERATURE)


def single(prompt: int, output: int) -> Workload:
    return Workload("G2", f"one request, {prompt} in, {output} out", "ms a token", (Job(prompt, output),))


def prompts(requests: int, prompt: int) -> Workload:
    what = f"{requests} prompts of {prompt} tokens, 1 token out"
    return Workload("G3", what, "prompt tok/s", (Job(prompt, 1),) * requests)


def shared(requests: int, common: int, own: int, output: int) -> Workload:
    what = f"{requests} requests: {common} shared prefix tokens + {own} own, {output} out"
    return Workload("G4", what, "tok/s", (Job(common + own, output, common),) * requests)


def even(requests: int, prompt: int, output: int) -> Workload:
    what = f"{requests} requests at once, {prompt} in, {output} out"
    return Workload("G5", what, "tok/s", (Job(prompt, output),) * requests)


FULL: dict[str, Callable[[], Workload]] = {
    "G1": lambda: many(256, 100, 1024),
    "G2": lambda: single(128, 256),
    "G3": lambda: prompts(16, 4096),
    "G4": lambda: shared(64, 2048, 64, 64),
    "G5": lambda: even(32, 1024, 256),
}
# Small ones, to see that everything works: their figures mean little.
QUICK: dict[str, Callable[[], Workload]] = {
    "G1": lambda: many(12, 8, 40),
    "G2": lambda: single(16, 12),
    "G3": lambda: prompts(2, 96),
    "G4": lambda: shared(6, 64, 8, 6),
    "G5": lambda: even(4, 24, 8),
}
