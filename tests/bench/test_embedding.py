"""The benchmark of embeddings: both modes ask for the same work, and the figures follow from the times."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.bench.embed_report import embed_fields
from penstock.bench.embedding import EmbedRun, gflops, run_engine, run_http, speedups
from penstock.bench.report import frame, tables
from penstock.bench.target import Target
from penstock.errors import InvalidRequestError
from tests.engine.encode.encoders import core, save
from tests.server import Server

TEXTS = [[5, 6, 7], [8, 9], [10, 11, 12, 13, 14]]


def test_the_engine_computes_every_text_in_both_modes(tmp_path: Path) -> None:
    save(tmp_path, "Bert")
    engine = core(tmp_path)
    clock = itertools.count()
    runs = run_engine(engine, TEXTS, "mean", repeat=2, clock=lambda: float(next(clock)))
    assert [(run.where, run.mode) for run in runs] == [("engine", "one by one"), ("engine", "batched")]
    assert [run.seconds for run in runs] == [[1.0, 1.0], [1.0, 1.0]]
    # Once to warm up, then twice one by one and twice all at once.
    assert engine.stats().steps == 1 + 2 * 3 + 2 * 1
    assert engine.stats().prompt_tokens == 5 * 10
    assert runs[0].tokens == runs[1].tokens == 10


def test_the_engine_is_stopped_with_the_repeats_that_have_ended(tmp_path: Path) -> None:
    save(tmp_path, "Bert")
    engine, seen = core(tmp_path), []
    # After the warm-up, a whole repeat, and a text by itself of the second.
    runs = run_engine(
        engine, TEXTS, "mean", repeat=9, progress=seen.append, stop=lambda: sum(seen) >= 10 + 20 + 3
    )
    assert [(run.mode, len(run.seconds)) for run in runs] == [("one by one", 1), ("batched", 1)]
    assert sum(seen) == 33


def test_of_one_mode_alone_no_ratio_is_given() -> None:
    content = frame("embed", ["penstock"], {}, None)
    content |= embed_fields([EmbedRun(where="HTTP", mode="one by one", texts=2, tokens=10, seconds=[2.0])])
    assert content["batched_over_one_by_one"] == {}
    assert len(list(tables(content))) == 2  # the times, and the machine


async def test_a_server_is_asked_for_every_text_in_both_modes(embedding_server: Server) -> None:
    before = embedding_server.metric("vllm:request_success_total", finished_reason="stop")
    runs = await run_http(Target(url=embedding_server.url, model="all-MiniLM-L6-v2"), TEXTS, repeat=1)
    ended = embedding_server.metric("vllm:request_success_total", finished_reason="stop")
    assert ended - before == 3 * len(TEXTS)
    assert set(speedups(runs)) == {"HTTP"}


async def test_a_server_that_refuses_is_quoted(server: Server, model_name: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"answered 400: .* is a chat model"):
        await run_http(Target(url=server.url, model=model_name), TEXTS, repeat=1)


def test_figures_follow_from_the_median() -> None:
    slow = EmbedRun(where="engine", mode="one by one", texts=2, tokens=10, seconds=[9.0, 4.0, 1.0])
    fast = EmbedRun(where="engine", mode="batched", texts=2, tokens=10, seconds=[1.0])
    assert slow.median == 4.0
    assert speedups([slow, fast]) == {"engine": 4.0}
    assert gflops(fast, weights=10**9) == 20.0
    content = frame("embed", ["penstock"], {}, None) | embed_fields([slow, fast])
    assert content["runs"][0]["tokens_per_second"] == 2.5
    assert any("4.00x" in str(line) for line in tables(content))


def test_the_command_measures_the_embedding_model(embedding_model: Path) -> None:
    command = [sys.executable, "-m", "penstock", "bench", "embed", "--texts", "4", "--repeat", "1"]
    done = subprocess.run(
        [*command, "--no-ceilings", "--json", "-"], capture_output=True, text=True, timeout=120, check=True
    )
    content = json.loads(done.stdout)
    assert content["subject"]["model"] == "all-MiniLM-L6-v2"
    assert [run["mode"] for run in content["runs"]] == ["one by one", "batched"]
    assert "all at once is" in done.stderr
