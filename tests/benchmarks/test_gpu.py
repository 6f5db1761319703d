"""The measurement on a GPU: what its workloads and limits are made of, and that all of it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.gpu.ceilings import Ceilings
from benchmarks.gpu.driving import Baseline
from benchmarks.gpu.limits import limit
from benchmarks.gpu.options import read_options
from benchmarks.gpu.report import baselines_table
from benchmarks.gpu.stated import Stated, verdict
from benchmarks.gpu.subjects import Shape, Subject
from benchmarks.gpu.workloads import FULL, QUICK

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
LLAMA = Subject.read("llama8b")
# Of one H200, rounded.
CEILINGS = Ceilings(
    "a GPU",
    read_tb_per_second=4.2,
    copy_tb_per_second=4.3,
    bf16_tflop_per_second=788,
    step_ms={"llama8b": {"bfloat16": {1: 4.0, 32: 4.3, 128: 4.8, 256: 6.7}}},
)


def test_the_lengths_of_g1_are_those_of_the_published_benchmark() -> None:
    workload = FULL["G1"]()
    assert (len(workload.jobs), workload.prompt_tokens, workload.output_tokens) == (256, 148_194, 140_797)
    assert {n for job in workload.jobs for n in (job.prompt, job.output)} <= set(range(100, 1025))


def test_the_other_workloads_have_their_sizes() -> None:
    sizes = {name: (len(w().jobs), w().prompt_tokens, w().output_tokens) for name, w in FULL.items()}
    assert sizes["G2"] == (1, 128, 256)
    assert sizes["G3"] == (16, 65_536, 16)
    assert sizes["G4"] == (64, 64 * 2112, 64 * 64)
    assert sizes["G5"] == (32, 32_768, 8192)


@pytest.mark.parametrize("name", FULL)
def test_another_repeat_has_other_tokens_of_the_same_lengths(name: str) -> None:
    workload = QUICK[name]()
    first, again, other = (workload.requests(512, salt=salt) for salt in ("0", "0", "1"))
    assert [r.prompt for r in first] == [r.prompt for r in again]
    assert [len(r.prompt) for r in first] == [len(r.prompt) for r in other]
    assert all(a.prompt[:8] != b.prompt[:8] for a, b in zip(first, other, strict=True))


def test_only_g4_shares_a_prefix() -> None:
    for name, make in QUICK.items():
        workload = make()
        prompts = [request.prompt for request in workload.requests(512, salt="0")]
        shared = workload.jobs[0].shared
        assert (shared > 0) == (name == "G4")
        assert len({tuple(prompt[:shared]) for prompt in prompts}) == 1
        assert len({tuple(prompt[: shared + 8]) for prompt in prompts}) == len(prompts)


def test_shapes_are_those_of_the_models() -> None:
    shape = Shape.of("llama8b")
    assert shape.layer_weights + 2 * shape.head_weights == 8_029_995_008  # and 266,240 numbers in norms
    assert shape.kv_bytes("auto") == 131_072
    assert shape.kv_bytes("fp8") == 2 * 32 * 8 * (128 + 4)
    small = Shape.of("qwen0.6b")
    assert small.layer_weights + small.head_weights == 595_984_384


def test_limits_are_what_the_ceilings_allow() -> None:
    single = limit(FULL["G2"](), LLAMA, CEILINGS)
    assert single == pytest.approx(4.0 + 1000 * 256 * 131_072 / 4.2e12, rel=1e-3)
    prompts = limit(FULL["G3"](), LLAMA, CEILINGS)
    assert prompts is not None
    assert 49_000 < prompts < 56_400  # without attention it would be the latter
    shared, alone = (limit(FULL["G4"](), LLAMA, CEILINGS, share=share) for share in (True, False))
    assert shared is not None
    assert alone is not None
    assert shared > 1.5 * alone
    many = limit(FULL["G1"](), LLAMA, CEILINGS)
    assert many is not None
    assert 11_000 < many < 13_000


def test_without_ceilings_there_is_no_limit() -> None:
    assert limit(FULL["G1"](), LLAMA, Ceilings("cpu")) is None
    assert limit(FULL["G1"](), Subject.read("llama8b:fp8"), CEILINGS) is None


def test_subjects_are_read_as_they_are_spelled() -> None:
    assert Subject.read("qwen0.6b") == Subject("qwen0.6b", "bfloat16", "auto")
    for text in ("llama8b:bfloat16", "llama8b:fp8:fp8"):
        assert Subject.read(text).spelled == text
    for text in ("gpt2", "llama8b:fp8:fp8:fp8", "llama8b:fp9", "llama8b:fp8:int8"):
        with pytest.raises(ValueError, match=text.rpartition(":")[2]):
            Subject.read(text)


def test_verdicts_know_which_way_is_better() -> None:
    faster, sooner = Stated(90, 100, 120), Stated(5, 4, 3)
    assert [verdict(faster, v, lower_is_better=False) for v in (99, 100, 120)] == [
        "not met",
        "met",
        "moonshot",
    ]
    assert [verdict(sooner, v, lower_is_better=True) for v in (4.1, 4, 3)] == ["not met", "met", "moonshot"]
    assert verdict(None, 1, lower_is_better=True) == ""


def test_baselines_are_judged_by_the_bars_that_are_named() -> None:
    speeds = {"static batches of 16": 300, "static batches of 64": 400, "one at a time": 101}
    found = [Baseline(name, speed, 8, 1.0, "so") for name, speed in speeds.items()]
    lines = baselines_table("llama8b", 1000, found)
    shown = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[3:6]]
    assert [row[:5] for row in shown] == [
        ("static batches of 16", "300", "3.3x", "3x", "met"),
        ("static batches of 64", "400", "2.5x", "", ""),
        ("one at a time", "101", "9.9x", "10x", "not met"),
    ]
    assert "3x against static batches of 16 and 10x against one at a time" in lines[-1]


def test_the_whole_runs_without_a_gpu_on_a_tiny_model(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    command = f"--device cpu --model tiny --quick --repeats 1 --set threads=1 --without graphs --json {file}"
    done = _run(command.split())
    assert done.returncode == 0, done.stderr
    content = json.loads(file.read_text())
    assert [result["workload"] for result in content["results"]] == list(FULL)
    assert all(result["value"] > 0 and len(result["values"]) == 1 for result in content["results"])
    cached = {result["workload"]: result["cached_prompt_tokens"] for result in content["results"]}
    assert [name for name, tokens in cached.items() if tokens] == ["G4"]  # the others are never seen twice
    assert content["failures"] == []
    assert content["engines"]["tiny:float32 without graphs"]["device"] == "cpu"
    assert "| tiny:float32 without graphs | G1" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--json no/such/folder/out.json", "the folder of --json does not exist: no/such/folder"),
        ("--profile no/such/folder/out.txt", "the folder of --profile does not exist"),
        ("--subject tiny:fp9", "'fp9'"),
        ("--precision fp9", "precision must be one of"),
        ("--set foo=1", "--set: an engine has no option foo"),
        ("--set model=1", "--set: an engine has no option model"),
        ("--set block_size=3", "block_size must be one of"),
        ("--set block_size", "--set: must be OPTION=JSON, got 'block_size'"),
        ("--set block_size=x", "--set: must be OPTION=JSON, got 'block_size=x'"),
        ("--static-batch a", "--static-batch: must be numbers above 0, got 'a'"),
        ("--repeats 0", "--repeats must be at least 1"),
        ("--tokens text.json", "--tokens and --write-tokens are for --accuracy"),
        ("--accuracy m --tokens text.json", "--tokens is no file: text.json"),
    ],
)
def test_a_mistake_in_an_option_is_a_sentence_before_anything_runs(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        read_options(["--device", "cpu", "--model", "tiny", *arguments.split()], None)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_without_a_gpu_it_says_so() -> None:
    done = _run(["--model", "tiny"], CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert "torch sees no GPU here" in done.stderr


def _run(arguments: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment, check=False)
