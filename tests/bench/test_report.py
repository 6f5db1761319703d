"""A report has what one needs to believe its figures."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from rich.console import Console

from penstock.bench.ceilings import Ceilings, measure
from penstock.bench.machine import machine, versions
from penstock.bench.report import medians, ratios, report, tables
from penstock.bench.statistics import Run, Timing, summarise

CEILINGS = Ceilings(device="cpu", threads=2, memory_read_gb_per_second=20.0, fp32_gflop_per_second=300.0)


def run(mode: str, wall: float, *, repeat: int = 0, **changes: Any) -> Run:
    times = [Timing(0.0, wanted=2, input_tokens=5, tokens_at=[wall / 2, wall], output_tokens=2)]
    engine = {
        "steps": 10,
        "tokens_per_step": 2.0,
        "kv_waste": 0.031,
        "prefix_hit_rate": 0.5,
        "preemptions": 1,
    }
    return summarise(
        times, **{"workload": "W2", "mode": mode, "repeat": repeat, "wall": wall, "engine": engine, **changes}
    )


def content(runs: list[Run], **subject: Any) -> dict[str, Any]:
    command = ["penstock", "bench", "offline", "--salt", "a b"]
    return report(kind="offline", command=command, subject=subject, runs=runs, ceilings=CEILINGS)


def printed(runs: list[Run], *, width: int = 120, **subject: Any) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for item in tables(content(runs, **subject), runs):
        console.print(item)
    console.file.close()
    return console.export_text()


def test_a_report_is_json_with_machine_versions_and_command() -> None:
    data = json.loads(json.dumps(content([run("continuous", 2.0)], model="m")))
    assert data["command"] == "penstock bench offline --salt 'a b'"
    assert data["machine"]["cores"] >= 1
    assert data["versions"]["penstock"] == versions()["penstock"]
    assert data["ceilings"]["memory_read_gb_per_second"] == 20.0
    assert data["runs"][0]["output_tokens_per_second"] == 1.0
    assert data["runs"][0]["ttft"]["p50"] == 1.0


def test_the_ratio_is_of_the_median_runs() -> None:
    runs = [run("continuous", wall) for wall in (1.0, 2.0, 8.0)] + [
        run("static", wall) for wall in (1.0, 10.0, 10.0)
    ]
    assert ratios(runs) == {"W2": pytest.approx(5.0)}
    assert [r.wall_seconds for r in medians(runs)] == [2.0, 10.0]


def test_without_a_static_run_there_is_no_ratio() -> None:
    assert ratios([run("continuous", 1.0)]) == {}


def test_tables_show_figures_beside_their_ceilings() -> None:
    text = printed([run("continuous", 2.0), run("static", 10.0)], weight_bytes=1_000_000_000)
    assert "5.00x" in text
    assert "3.10%" in text  # KV waste
    assert "memory read 20.0 GB/s, fp32 matmul 300 GFLOP/s" in text
    assert "W2 continuous: weights read at 5.0 GB/s, 25% of ceiling" in text
    assert re.search(r"W2 +continuous +TTFT( +1000){4}", text)  # milliseconds


def test_tables_fit_a_terminal_of_80_columns() -> None:
    text = printed([run("continuous", 2000.0), run("static", 100_000.0)], width=80)
    assert "…" not in text


def test_errors_and_short_answers_are_shown() -> None:
    failed = summarise(
        [
            Timing(0.0, wanted=2, input_tokens=5, error="429: busy"),
            Timing(0.0, wanted=2, input_tokens=5, tokens_at=[1.0], output_tokens=1),
        ],
        workload="W3",
        mode="online",
        repeat=0,
        wall=1.0,
    )
    text = printed([failed])
    assert "W3, first error: 429: busy" in text
    assert "1 answers had another number of tokens" in text


def test_ceilings_are_measured_on_this_machine() -> None:
    pytest.importorskip("torch")
    ceilings = measure("cpu", threads=1)
    assert ceilings is not None
    assert ceilings.threads == 1
    # Any machine this runs on reads faster than a disk and multiplies faster than a calculator.
    assert 0.1 < ceilings.memory_read_gb_per_second < 100_000
    assert 0.1 < ceilings.fp32_gflop_per_second < 1e9


def test_the_machine_is_described() -> None:
    assert machine()["processor"]
    assert machine()["memory_gib"] > 0
