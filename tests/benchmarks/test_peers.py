"""The comparison with other engines: order, figures, tables, and what it makes of packages and files."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from benchmarks.peers.environments import UnavailableError, name_alike
from benchmarks.peers.figures import Comparison, Measured, compare
from benchmarks.peers.model import as_q4_0
from benchmarks.peers.report import (
    BEGIN,
    END,
    Results,
    as_json,
    bars,
    by_system,
    by_workload,
    markdown,
    with_section,
)
from benchmarks.peers.servers import PEERS, PENSTOCK
from benchmarks.peers.starts import Start, stays
from benchmarks.peers.turns import OURS, turns
from gguf.quants import dequantize, quantize

from penstock.bench.ceilings import Ceilings
from penstock.bench.statistics import Run, Timing, summarise

GIB = 2**30
Q4_0, Q4_1 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q4_1
ROOT = Path(__file__).parents[2]
CEILINGS = Ceilings(
    device="cpu",
    threads=2,
    memory_read_gb_per_second=29.04,
    fp32_gflop_per_second=197.0,
    int8_gop_per_second=1188.0,
)


def run(workload: str, *, wall: float = 2.0, first: float = 0.5, tokens: int = 4, repeat: int = 0) -> Run:
    """One answer of four tokens, or fewer."""
    at = [first + index * (wall - first) / 3 for index in range(tokens)]
    timing = Timing(0.0, wanted=4, input_tokens=8, tokens_at=at, output_tokens=tokens, ended=wall)
    return summarise([timing], workload=workload, mode="online", repeat=repeat, wall=wall)


def results(*measured: Measured, missing: dict[str, str] | None = None) -> Results:
    machine = {"processor": "any", "cores": 2, "memory_gib": 24.0, "system": "Linux"}
    about = {"date": "2026-01-01", "command": "peers.py", "machine": machine, "python": "3.11", "model": "m"}
    systems = {OURS: PENSTOCK, "vllm": PEERS["vllm"], "llamacpp": PEERS["llamacpp"]}
    return Results(about, CEILINGS, systems, ["W1", "W4"], 1, measured=list(measured), missing=missing or {})


def figure(found: list[Comparison], name: str) -> Comparison:
    return next(each for each in found if each.goal.name == name)


# ---------------------------------------------------------------- turns


def test_penstock_runs_after_every_peer_of_every_workload() -> None:
    order = turns({"a": ("W1", "W2"), "b": ("W1", "W2")}, ["W1", "W2"], 1)
    assert [(turn.workload, turn.system) for turn in order] == [
        *(("W1", "a"), ("W1", OURS), ("W1", "b"), ("W1", OURS)),
        *(("W2", "a"), ("W2", OURS), ("W2", "b"), ("W2", OURS)),
    ]


def test_another_peer_begins_in_each_repeat() -> None:
    order = turns({"a": ("W1",), "b": ("W1",)}, ["W1"], 3)
    assert [order[index].system for index in (0, 4, 8)] == ["a", "b", "a"]


def test_no_two_turns_of_a_workload_have_the_same_prompts() -> None:
    order = turns({"a": ("W1", "W2"), "b": ("W1",), "c": ("W2",)}, ["W1", "W2"], 3)
    asked = [(turn.workload, turn.prompts) for turn in order]
    assert len(set(asked)) == len(asked)


def test_a_peer_is_not_asked_for_what_it_cannot_do_and_penstock_runs_alone_if_need_be() -> None:
    order = turns({"a": ("W1",)}, ["W1", "W3"], 1)
    assert [(turn.workload, turn.system) for turn in order] == [("W1", "a"), ("W1", OURS), ("W3", OURS)]
    assert [turn.system for turn in turns({}, ["W2"], 2)] == [OURS, OURS]


@pytest.mark.parametrize(
    ("start", "available", "stay"),
    [
        (Start(80.0, 7 * GIB, 0.0), 14 * GIB, True),
        (Start(3.0, GIB, 0.0), 22 * GIB, False),  # soon started again
        (Start(80.0, 7 * GIB, 0.5), 14 * GIB, False),  # takes half a core from others
        (Start(80.0, 16 * GIB, 0.0), 6 * GIB, False),  # leaves too little memory
    ],
)
def test_a_server_stays_idle_only_if_its_start_is_costly_and_it_disturbs_nobody(
    start: Start, available: int, stay: bool
) -> None:
    assert stays(start, available, 24 * GIB) is stay


# ---------------------------------------------------------------- figures


def test_the_ratio_is_of_medians_and_to_the_best_peer() -> None:
    measured = [Measured("slow", run("W4", wall=40.0)), Measured("fast", run("W4", wall=8.0))]
    measured += [Measured(OURS, run("W4", wall=wall)) for wall in (2.0, 3.0, 90.0)]
    wall = figure(compare([OURS, "slow", "fast"], measured), "w4_wall")
    assert wall.best == "fast"
    assert wall.ratio == pytest.approx(3.0 / 8.0)
    assert (wall.values[OURS].min, wall.values[OURS].max) == (2.0, 90.0)
    assert wall.reaches(0.5) is True
    assert wall.reaches(0.3) is False


def test_where_more_is_better_the_best_peer_has_the_most() -> None:
    measured = [
        Measured(name, run("W1", wall=wall)) for name, wall in (("slow", 9.5), ("fast", 1.5), (OURS, 2.0))
    ]
    decode = figure(compare([OURS, "slow", "fast"], measured), "w1_decode")
    assert decode.best == "fast"
    assert decode.ratio == pytest.approx(1.0 / 1.5)
    assert decode.reaches(1.0) is False


def test_a_run_with_answers_that_are_short_counts_in_no_median_and_is_named() -> None:
    short = Measured("vllm", run("W4", wall=0.1, first=0.05, tokens=2))
    wall = figure(compare([OURS, "vllm"], [short, Measured("vllm", run("W4"))]), "w4_wall")
    assert wall.values["vllm"].repeats == 1
    assert results(short).problems() == ["vllm: W4, repeat 1: of 1 answers 1 short"]


def test_memory_and_start_are_held_against_bars_of_their_own() -> None:
    ours = replace(run("W3"), peak_memory_bytes=800_000_000, startup_seconds=6.0)
    peer = replace(run("W3"), peak_memory_bytes=3_600_000_000, startup_seconds=0.4)
    found = compare([OURS, "llamacpp"], [Measured(OURS, ours), Measured("llamacpp", peer)])
    memory, start = figure(found, "memory"), figure(found, "start")
    assert memory.reaches(memory.goal.bar) is True
    assert start.ratio == pytest.approx(15.0)
    assert start.reaches(start.goal.bar) is False


def test_a_figure_is_held_against_what_is_stated_too() -> None:
    ours, peer = Measured(OURS, run("W4", wall=2.5)), Measured("vllm", run("W4", wall=10.0))
    wall = figure(compare([OURS, "vllm"], [ours, peer]), "w4_wall")
    assert wall.reaches(0.5) is True
    assert wall.stated_ratio == pytest.approx(2.5 / 4.1)
    assert wall.reaches(0.5, stated=True) is False


def test_without_a_peer_there_is_a_ratio_to_what_is_stated_alone() -> None:
    wall = figure(compare([OURS], [Measured(OURS, run("W4", wall=2.05))]), "w4_wall")
    assert (wall.best, wall.ratio, wall.reaches(0.5)) == (None, None, None)
    assert wall.stated_ratio == pytest.approx(0.5)
    assert wall.reaches(0.3, stated=True) is False


# ---------------------------------------------------------------- tables


def test_the_table_of_bars_has_every_system_and_both_ratios() -> None:
    told = results(Measured(OURS, run("W4", wall=2.0)), Measured("vllm", run("W4", wall=5.0)))
    head, wall = bars(told)
    assert head[1:4] == [OURS, "vllm", "llamacpp"]
    assert wall == [
        *("W4 wall, s", "2.00", "5.00", "-", "<= 0.5x", "<= 0.3x"),
        *("0.40x (vllm): met", "0.49x (4.1 s, vLLM): met"),
    ]


def test_the_row_of_memory_has_the_idle_servers_and_the_peak() -> None:
    told = results(Measured(OURS, replace(run("W3"), peak_memory_bytes=900_000_000)))
    told.starts[OURS] = [Start(2.0, 600_000_000, 0.0), Start(2.0, 610_000_000, 0.0)]
    row = next(row for row in bars(told) if "memory" in row[0])
    assert row[:2] == ["W3 peak memory, and idle, MB", "900; idle 605 (600-610)"]
    assert row[-2:] == ["-", "0.75x (1,200 MB): met"]


def test_the_ceilings_of_the_machine_stand_in_the_section_and_in_the_json() -> None:
    told = results(Measured(OURS, run("W1")))
    assert as_json(told)["ceilings"]["memory_read_gb_per_second"] == 29.04
    assert "memory read 29.0 GB/s, fp32 matmul 197 GFLOP/s, int8 1,188 GOP/s" in markdown(told)


def test_a_peer_that_cannot_start_is_a_row_with_the_reason() -> None:
    told = results(Measured(OURS, run("W1")), missing={"vllm": "pip install ended with 1"})
    rows = {(row[0], row[1]): row for row in by_workload(told)[1:]}
    assert rows["W1", "vllm"][2] == "not measured, see below"
    assert rows["W4", OURS][2] == "not run"
    systems = {row[0]: row for row in by_system(told)[1:]}
    assert systems["vllm"][3] == "not measured: pip install ended with 1"
    assert as_json(told)["systems"]["vllm"]["not_measured"] == "pip install ended with 1"


def test_every_row_has_a_cell_for_each_column() -> None:
    measured = [Measured(name, run(workload)) for name in (OURS, "vllm") for workload in ("W1", "W4")]
    told = results(*measured, missing={"llamacpp": "no"})
    for rows in (bars(told), by_workload(told), by_system(told)):
        assert {len(row) for row in rows} == {len(rows[0])}


def test_a_run_beside_other_work_is_said_to_be_one() -> None:
    assert results(Measured(OURS, run("W1"), 0.02)).disturbance() is None
    said = results(Measured(OURS, run("W1"), 0.02), Measured("vllm", run("W1"), 1.26)).disturbance()
    assert said is not None
    assert said.startswith("In 1 of 2 runs other work took more than 0.1 cores (at most 1.3)")


def test_the_section_of_a_page_is_replaced_and_nothing_else() -> None:
    page = with_section("# Results\n\n## Start\n", "first")
    page = page + "\n## Later\n"
    again = with_section(page, "second")
    assert again == page.replace("first", "second")
    assert again.count(BEGIN) == again.count(END) == 1


# ---------------------------------------------------------------- packages and files


def test_a_distribution_answers_to_a_second_name_as_a_build_for_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "penstock_peer_cpu-1.2.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: penstock_peer-cpu\nVersion: 1.2\n\nText\n"
    )
    name_alike(tmp_path, "penstock_peer_cpu", "penstockpeer")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.metadata.version("penstockpeer") == "1.2+cpu"
    with pytest.raises(UnavailableError, match="no distribution other"):
        name_alike(tmp_path, "other", "else")


def test_q4_1_becomes_q4_0_and_everything_else_stays(tmp_path: Path) -> None:
    values = np.random.default_rng(1).standard_normal((4, 64), dtype=np.float32)
    source = tmp_path / "small.Q4_1.gguf"
    writer = gguf.GGUFWriter(source, "llama")
    writer.add_block_count(3)
    writer.add_token_list(["a", "é"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_tensor("blk.0.ffn_up.weight", quantize(values, Q4_1), raw_dtype=Q4_1)
    writer.add_tensor("output_norm.weight", values[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    read = gguf.GGUFReader(as_q4_0(source, tmp_path / "models", lambda _: None))
    tensors = {tensor.name: tensor for tensor in read.tensors}
    assert tensors["blk.0.ffn_up.weight"].tensor_type == Q4_0
    restored = dequantize(tensors["blk.0.ffn_up.weight"].data, Q4_0)
    assert np.abs(restored - values).max() < 0.6  # a step of a block of such values is about 0.35
    assert np.array_equal(tensors["output_norm.weight"].data, values[0])
    fields = {name: field.contents() for name, field in read.fields.items()}
    assert fields["llama.block_count"] == 3
    assert fields["tokenizer.ggml.tokens"] == ["a", "é"]
    assert fields["general.file_type"] == gguf.LlamaFileType.MOSTLY_Q4_0


def test_an_unknown_peer_is_refused_with_those_there_are() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "peers.py"), "--peers", "vllm,sglang"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "there is no peer sglang; the peers are llamacpp, llamacpp-q4_0, vllm, transformers" in done.stderr
