"""A real Prometheus scrapes a real run, and says what the load generator has measured on its own side."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.bench.online import run_online
from penstock.bench.statistics import Run
from penstock.bench.target import Target
from penstock.bench.workloads import Job, Workload
from tests.gateway.door import Door, behind
from tests.prometheus import Prometheus
from tests.server import poll
from tests.servers.http import in_a_thread
from tests.servers.openai import Fleet

SLO = 0.15  # seconds, which is no bound that anybody thought of
# Delays spread evenly up to just below a bound: then Prometheus, which takes what lies between two bounds for
# evenly spread, reads quantiles off its buckets as well as from the times themselves.
LONGEST = 1.93
DELAYS = [LONGEST * number / 120 for number in range(1, 121)]


class Watched:
    """A server, and the Prometheus that scrapes it four times a second."""

    def __init__(self, door: Door, prometheus: Prometheus) -> None:
        self.door = door
        self.prometheus = prometheus

    async def load(self, model: str, workload: Workload, jobs: list[Job], **target: object) -> Run:
        where = Target(url=self.door.url, model=model, **target)  # type: ignore[arg-type]
        run = await run_online(where, workload, jobs)
        assert run.completed == run.requests, run.first_error
        answered = f'penstock_requests_total{{model_name="{model}",outcome="ok"}}'
        poll(lambda: self.value(f"sum({answered})") == run.requests)
        return run

    def value(self, query: str) -> float:
        found = self.prometheus.query(query)
        return found[0][1] if found else 0.0

    def tokens(self, model: str, kind: str) -> float:
        return self.value(f'sum(penstock_tokens_total{{model_name="{model}",kind="{kind}"}})')

    def judged(self, model: str, verdict: str) -> float:
        which = f'model_name="{model}",objective="ttft",verdict="{verdict}"'
        return self.value(f"sum(penstock_slo_requests_total{{{which}}})")

    def mean(self, histogram: str, model: str) -> float:
        total = self.value(f'sum({histogram}_sum{{model_name="{model}"}})')
        return total / self.value(f'sum({histogram}_count{{model_name="{model}"}})')

    def quantile(self, q: float, model: str) -> float:
        buckets = f'penstock_time_to_first_token_seconds_bucket{{model_name="{model}"}}'
        return self.value(f"histogram_quantile({q}, sum by (le) ({buckets}))")


@contextmanager
def watching(default_model: Path, tmp_path: Path) -> Iterator[Watched]:
    with in_a_thread(Fleet().replica()) as upstream:
        config = {
            "models": {
                "small": {"backends": [{"engine": str(default_model)}], "slo": {"ttft": SLO}},
                "delayed": behind(upstream.url, price={"input": 1, "output": 2}),
            }
        }
        door = Door(tmp_path / "door", config)
        scrape = {
            "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"},
            "scrape_configs": [
                {"job_name": "penstock", "static_configs": [{"targets": [f"{door.host}:{door.port}"]}]}
            ],
        }
        try:
            with Prometheus(scrape, tmp_path / "prometheus") as prometheus:
                poll(lambda: prometheus.query("up == 1"))
                yield Watched(door, prometheus)
        finally:
            door.stop()


class Differences(list[str]):
    """Times that are not the same on both sides."""

    def compare(self, what: str, found: float, measured: float, rel: float = 0.05) -> None:
        if found != pytest.approx(measured, rel=rel):
            self.append(f"{what}: {found} there, {measured} here")


async def agree(
    default_model: Path, tmp_path: Path, look: Callable[[Watched, Differences], Awaitable[None]]
) -> None:
    """One run in three must agree: a machine that stands still in between delays one side alone. What is
    counted must be right in each."""
    for turn in range(3):
        differences = Differences()
        with watching(default_model, tmp_path / str(turn)) as watched:
            await look(watched, differences)
        if not differences:
            return
    raise AssertionError(differences)


async def test_tokens_are_the_same_and_times_nearly(default_model: Path, tmp_path: Path) -> None:
    await agree(default_model, tmp_path, _computed)


async def _computed(watched: Watched, differences: Differences) -> None:
    # Long enough that the way to the client, a millisecond or two on a busy machine, is not to be seen.
    workload = Workload(name="small", requests=32, input_len=(200, 500), output_len=(6, 16), clients=4)
    run = await watched.load("small", workload, workload.jobs(vocab_size=1000))
    assert watched.tokens("small", "prompt") == run.input_tokens
    assert watched.tokens("small", "completion") == run.output_tokens
    assert (
        watched.value('sum(penstock_request_completion_tokens_sum{model_name="small"})') == run.output_tokens
    )
    for histogram, measured in (
        ("penstock_time_to_first_token_seconds", run.ttft.mean),
        ("vllm:time_to_first_token_seconds", run.ttft.mean),
        ("penstock_time_per_output_token_seconds", run.tpot.mean),
        ("penstock_e2e_request_latency_seconds", run.e2e.mean),
    ):
        differences.compare(histogram, watched.mean(histogram, "small"), measured)
    # Each bucket has what the generator would count in it, give or take what is within 5% of its bound, and
    # the two or three whose answers lay about while this machine was busy.
    times = [sample.ttft for sample in run.samples if sample.ttft is not None]
    buckets = watched.prometheus.query(
        'sum by (le) (penstock_time_to_first_token_seconds_bucket{model_name="small"})'
    )
    assert {SLO, 0.5, 1, 2} <= {float(labels["le"]) for labels, _ in buckets}, "objectives are bounds"
    for labels, count in buckets:
        bound = float(labels["le"])
        least, most = (sum(each <= bound * factor for each in times) for factor in (0.95, 1.05))
        if not least - 3 <= count <= most + 3:
            differences.append(f"{count} within {bound} s there, {least} to {most} here")
    # However times are spread, what is read off lies in the same bucket, and those are an eighth wide.
    differences.compare("p50", watched.quantile(0.5, "small"), run.ttft.p50, rel=0.125 + 0.05)
    within = watched.value(
        f'sum(penstock_time_to_first_token_seconds_bucket{{model_name="small",le="{SLO}"}})'
    )
    assert watched.judged("small", "good") == within, "the objective is read off the histogram, exactly"


async def test_quantiles_agree_and_the_bill_is_the_same(default_model: Path, tmp_path: Path) -> None:
    await agree(default_model, tmp_path, _delayed)


async def _delayed(watched: Watched, differences: Differences) -> None:
    delays = random.Random(8).sample(DELAYS, len(DELAYS))
    jobs = [Job([0], 3, text=json.dumps({"tokens": 3, "pause": delay})) for delay in delays]
    workload = Workload(name="delayed", requests=len(jobs), input_len=(1, 1), output_len=(3, 3), clients=24)
    run = await watched.load("delayed", workload, jobs, endpoint="chat", ignore_eos=False)
    differences.compare("p50", watched.quantile(0.5, "delayed"), run.ttft.p50)
    differences.compare("p99", watched.quantile(0.99, "delayed"), run.ttft.p99)
    mean = watched.mean("penstock_time_to_first_token_seconds", "delayed")
    differences.compare("mean", mean, run.ttft.mean)
    assert watched.tokens("delayed", "prompt") == run.input_tokens
    assert watched.tokens("delayed", "completion") == run.output_tokens == 3 * len(jobs)
    dollars = watched.value('sum(penstock_cost_dollars_total{model_name="delayed"})')
    assert dollars == pytest.approx((run.input_tokens + 2 * run.output_tokens) / 1e6)
    late = sum((sample.ttft or 0) > 0.5 for sample in run.samples)
    bad = watched.judged("delayed", "bad")
    if bad != pytest.approx(late, abs=2):
        differences.append(f"{bad} late there, {late} here")
