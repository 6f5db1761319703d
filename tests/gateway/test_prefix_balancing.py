"""Prefix-aware balancing over real engines: what one of them has computed is found again, and none is hot."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.load import Load, until
from tests.faults.tiny import save_tiny_model
from tests.server import Server

REPLICAS = 4
PREFIXES, EACH = 20, 10


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prefix") / "penstock.yaml"


@pytest.fixture(scope="module")
def server(config: Path) -> Iterator[Server]:
    """The same model twice: with one engine, and with several."""
    save_tiny_model(config.parent / "tiny")
    write(config, balance="prefix")
    running = Server(None, "--config", str(config), log=config.parent / "log", env={"PENSTOCK_THREADS": "1"})
    yield running
    running.stop()


def write(config: Path, balance: str) -> None:
    engine = {"engine": str(config.parent / "tiny"), "device": "cpu"}
    models = {
        "one": {"backends": [engine]},
        "several": {"backends": [{**engine, "replicas": REPLICAS}], "balance": balance},
    }
    # Probes generate too, and would be counted.
    health = {"slow_start": "1ms", "probe_every": "10m"}
    config.write_text(yaml.safe_dump({"models": models, "health": health}))


def workload(model: str, seed: int) -> list[dict[str, Any]]:
    """Long beginnings that requests share, and an end of its own for each; those of a seed share nothing
    with those of another."""
    draw = random.Random(seed)
    beginnings = [f"{seed}: " + "".join(draw.choices("abcdef ", k=600)) for _ in range(PREFIXES)]
    prompts = [f"{beginning} {number} asks" for beginning in beginnings for number in range(EACH)]
    draw.shuffle(prompts)
    return [{"model": model, "prompt": prompt, "max_tokens": 6, "ignore_eos": True} for prompt in prompts]


async def measured(server: Server, model: str, seed: int) -> tuple[float, list[float]]:
    """The share of prompt tokens that were found in caches, and the tokens of each engine."""
    engines = REPLICAS if model == "several" else 1

    def all_started() -> bool:
        known = tokens(server, model)
        return len(known) == engines and all(generated > 0 for _, _, generated in known.values())

    # An engine tells of its work a little later; also of the token that it starts with.
    await until(all_started)
    before = tokens(server, model)
    answers = await Load(server, workload(model, seed), at_once=8).run()
    assert [answer.status for answer in answers] == [200] * len(answers)
    usages = [answer.json()["usage"] for answer in answers]
    asked = sum(usage["prompt_tokens"] for usage in usages)

    def all_told() -> bool:
        return sum(queries for queries, _, _ in difference(tokens(server, model), before)) == asked

    await until(all_told)
    worked = difference(tokens(server, model), before)
    hits = sum(hits for _, hits, _ in worked)
    assert hits == sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    return hits / asked, [queries + generated for queries, _, generated in worked]


Tokens = tuple[float, float, float]  # of prompts, found in the cache, generated


def tokens(server: Server, model: str) -> dict[str, Tokens]:
    """By engine."""
    names = (
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:generation_tokens_total",
    )
    found = [
        {labels["engine"]: value for labels, value in server.metrics(name) if labels["model_name"] == model}
        for name in names
    ]
    return {engine: (found[0][engine], found[1][engine], found[2][engine]) for engine in found[0]}


def difference(after: dict[str, Tokens], before: dict[str, Tokens]) -> list[Tokens]:
    return [
        (
            after[engine][0] - before[engine][0],
            after[engine][1] - before[engine][1],
            after[engine][2] - before[engine][2],
        )
        for engine in after
    ]


async def test_several_replicas_find_nearly_as_much_as_one_and_none_is_hot(
    server: Server, config: Path
) -> None:
    alone, _ = await measured(server, "one", seed=1)
    assert alone > 0.8
    for seed in (
        12,
        22,
        32,
    ):  # one that stands still for a second leaves its work to others: no hot one is hot again
        together, engines = await measured(server, "several", seed)
        assert len(engines) == REPLICAS
        assert together >= 0.9 * alone
        if max(engines) <= 1.5 * sum(engines) / REPLICAS:
            break
    else:
        pytest.fail(f"some engine is always hot: {engines}")
    # In turn each replica has to compute what the others have.
    write(config, balance="round_robin")
    server.signal(signal.SIGHUP)
    await until(lambda: "Read the configuration again" in server.log())
    in_turn, _ = await measured(server, "several", seed=3)
    assert in_turn < 0.8 * alone
