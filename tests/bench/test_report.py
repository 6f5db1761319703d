"""A report has what one needs to believe its figures."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from rich.console import Console

from penstock.bench.machine import machine, versions
from penstock.bench.report import medians, ratios, tables
from penstock.bench.statistics import Timing
from tests.bench.results import ENGINE, content, run


def printed(result: dict[str, Any], *, width: int = 120) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for item in tables(result):
        console.print(item)
    console.file.close()
    return console.export_text()


def row(text: str, *cells: str) -> bool:
    """Whether a line has these cells one after another."""
    return re.search(r"\s+".join(re.escape(cell) for cell in cells), text) is not None


def test_a_report_is_json_with_machine_versions_and_command() -> None:
    data = json.loads(json.dumps(content([run()], kind="offline", model="m")))
    assert data["command"] == "penstock bench offline --salt 'a b'"
    assert data["machine"]["cores"] >= 1
    assert data["versions"]["penstock"] == versions()["penstock"]
    assert data["ceilings"]["memory_read_gb_per_second"] == 20.0
    assert data["runs"][0]["output_tokens_per_second"] == 1.0
    assert data["runs"][0]["ttft"]["p50"] == 1.0
    assert len(data["runs"][0]["samples"]) == 1
    assert data["medians"][0]["samples"] == []


def test_the_ratio_is_of_the_median_runs() -> None:
    runs = [run("continuous", wall) for wall in (1.0, 2.0, 8.0)] + [
        run("static", wall) for wall in (1.0, 10.0, 10.0)
    ]
    assert ratios(runs) == {"W2": pytest.approx(5.0)}
    assert [r.wall_seconds for r in medians(runs)] == [2.0, 10.0]


def test_without_a_static_run_there_is_no_ratio() -> None:
    assert ratios([run("continuous", 1.0)]) == {}


def test_runs_at_other_loads_are_not_repeats_of_each_other() -> None:
    runs = [run(concurrency=4), run(concurrency=8), run(concurrency=4)]
    assert [found.concurrency for found in medians(runs)] == [4, 8]


def test_tables_show_figures_beside_their_ceilings() -> None:
    runs = [run("continuous", 2.0, engine=ENGINE), run("static", 10.0, engine=ENGINE)]
    text = printed(content(runs, kind="offline", weight_bytes=10**9, weight_count=10**9, precision="int8"))
    assert "5.00x" in text
    assert "3.10%" in text  # KV waste
    assert "memory read 20.0 GB/s (56 from the cache), fp32 matmul 300 GFLOP/s, int8 1,200 GOP/s" in text
    # 10 steps x 1 GB in 2 s; 2 x 1e9 weights x 7 tokens in 2 s, against the ceiling of int8.
    assert row(text, "W2 continuous", "5.0", "25%", "7", "1%")
    assert row(text, "W2 continuous", "TTFT", *["1000"] * 5)  # milliseconds


@pytest.mark.parametrize(
    ("precision", "count", "reached"),
    [
        ("float32", 25 * 10**9, ("175", "58%")),  # 25e9 x 2 x 7 / 2, of 300
        ("int8", 80 * 10**9, ("560", "47%")),  # of 1,200
        ("float64", 0, ("-", "-")),
    ],
)
def test_the_matmul_ceiling_is_that_of_the_precision(
    precision: str, count: int, reached: tuple[str, str]
) -> None:
    subject = {"weight_bytes": 100 * 10**9, "weight_count": count, "precision": precision}
    text = printed(content([run(engine=ENGINE)], kind="offline", **subject))
    assert row(text, "W2 online", "500.0", "2500%", *reached)


def test_a_model_without_a_known_size_has_no_share_of_the_ceilings() -> None:
    assert "Share of the ceilings" not in printed(content([run(engine=ENGINE)]))


def test_tables_fit_a_terminal_of_80_columns() -> None:
    runs = [run("continuous", 2000.0, engine=ENGINE), run("static", 100_000.0, engine=ENGINE)]
    options: dict[str, Any] = {
        "weight_bytes": 10**9,
        "weight_count": 10**9,
        "precision": "float32",
        "price_per_hour": 1.0,
    }
    assert "…" not in printed(content([*runs, *runs], kind="offline", **options), width=80)


def test_every_outcome_is_counted_apart() -> None:
    def timing(**changes: Any) -> Timing:
        return Timing(0.0, wanted=2, input_tokens=5, **changes)

    timings = [
        *(timing(tokens_at=[0.5, 1.0], output_tokens=2, ended=1.0) for _ in range(5)),
        timing(error="429: busy [red]"),
        *(timing(error="late", timed_out=True) for _ in range(2)),
        *(timing(tokens_at=[1.0], output_tokens=1) for _ in range(3)),
        *(timing(cut_off=True) for _ in range(4)),
    ]
    text = printed(content([run(timings=timings, workload="W3")]))
    assert row(text, "W3 online", "15", "5", "3", "1", "2", "4")
    assert "W3 online, first error: 429: busy [red]" in text
    assert "3 answers had another number of tokens" in text
    assert "cut off" in text


def test_goodput_says_which_limits_were_kept() -> None:
    runs = [run(requests=4, slo={"ttft": 1.5, "e2e": 2.5})]
    text = printed(content(runs))
    assert "answers within TTFT 1500 ms, end to end 2500 ms" in text
    assert row(text, "W2 online", "4 of 4", "100.0%", "2.00", "4.0")


def test_cost_is_of_the_output_and_of_all_tokens() -> None:
    # 1 output and 2.5 input tokens/s at 3.6 an hour, which is 0.001 a second.
    text = printed(content([run()], price_per_hour=3.6))
    assert row(text, "W2 online", "1,000.00", "285.71")


def test_repeats_show_their_range_beside_the_median() -> None:
    text = printed(content([run(wall=wall) for wall in (1.0, 2.0, 4.0)]))
    assert "Throughput, median of 3" in text
    assert row(text, "W2 online", "output tok/s", "1.00", "0.5", "2.00", "±75.0%")


def test_a_sweep_shows_the_growth_and_where_it_ends() -> None:
    runs = [run("sweep", wall, concurrency=n, arrivals="closed") for wall, n in ((4, 1), (2, 2), (2.1, 4))]
    text = printed(content(runs, kind="sweep"))
    assert row(text, "W2 2 clients", "1.0", "+100%")
    assert [line for line in text.splitlines() if "2 clients" in line and "saturated" in line]
    assert not [line for line in text.splitlines() if "4 clients" in line and "saturated" in line]


def test_memory_and_startup_are_shown_where_they_are_known() -> None:
    from dataclasses import replace

    known = replace(run(), peak_memory_bytes=1_200_000_000, startup_seconds=2.5)
    assert row(printed(content([known])), "W2 online", "1,200", "2.50")
    assert "Memory and start-up" not in printed(content([run()]))


def test_the_machine_is_described() -> None:
    assert machine()["processor"]
    assert machine()["memory_gib"] > 0
