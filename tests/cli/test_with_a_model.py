"""The commands as a user runs them, on the default model."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

THREADS = ("--threads", "1", "--max-model-len", "512")


def penstock(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_complete_prints_the_continuation_and_the_json_holds_the_same_text() -> None:
    prompt = "The capital of France is"
    plain = penstock("complete", prompt, "-n", "8", "-t", "0", *THREADS)
    assert (plain.returncode, plain.stderr) == (0, "")
    assert "Paris" in plain.stdout

    done = penstock("complete", "-n", "8", "-t", "0", "--json", *THREADS, stdin=prompt)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["text"] == plain.stdout.rstrip("\n")
    assert answer["prompt"] == prompt
    assert answer["finish_reason"] in ("length", "stop")
    assert answer["usage"]["completion_tokens"] <= 8
    assert answer["usage"]["prompt_tokens"] == 5


def test_chat_answers_each_line_of_stdin_and_remembers() -> None:
    done = penstock(
        "chat",
        "-t",
        "0",
        "-n",
        "24",
        *THREADS,
        stdin="What is the capital of France?\n\nAnd of Italy?\n/exit\nmore\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second = [line for line in done.stdout.splitlines() if line][:2]
    assert "Paris" in first
    assert "Rome" in second


def test_chat_answers_the_other_lines_when_one_is_too_long_and_tells_by_its_exit_code() -> None:
    done = penstock("chat", "-t", "0", "-n", "8", *THREADS, stdin="word " * 600 + "\nSay hello.\n")
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 1
    assert "Use /reset" in done.stderr


def test_an_empty_prompt_is_a_mistake() -> None:
    done = penstock("complete", stdin="")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "penstock: The prompt is empty; give it as an argument or on stdin.\n"


def test_bench_offline_measures_both_kinds_of_batching(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    done = penstock(
        "bench", "offline", "--requests", "6", "--input-len", "8-24", "--output-len", "2-12",
        "--compare-static", "--batch-size", "3", "--json", str(path), *THREADS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the tokens/s of static" in done.stdout
    report = json.loads(path.read_text())
    continuous, static = report["runs"]
    assert continuous["output_tokens"] == static["output_tokens"]
    assert (continuous["errors"], static["errors"], continuous["short"], static["short"]) == (0, 0, 0, 0)
    # Each group runs as long as its longest answer; all together run as long as the longest of all.
    assert continuous["engine"]["steps"] < static["engine"]["steps"]
    assert report["ceilings"]["memory_read_gb_per_second"] > 0
    assert report["subject"]["architecture"] == "llama"
    assert report["command"].startswith("penstock bench offline --requests 6")


def test_a_result_that_cannot_be_written_is_a_mistake_before_anything_is_measured(tmp_path: Path) -> None:
    done = penstock("bench", "offline", "--json", str(tmp_path / "no" / "where.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("where.json, which cannot be written: No such file or directory.\n")


def test_ctrl_c_in_a_terminal_stops_the_answer_and_the_conversation_goes_on() -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "penstock", "chat", "-t", "0", *THREADS]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower) as process:
        os.close(follower)
        read_until(leader, b">>> ")
        os.write(leader, b"Tell me a very long story about a river.\n")
        read_until(leader, b"river.\r\n")
        assert os.read(leader, 1)  # the answer has begun
        process.send_signal(signal.SIGINT)
        read_until(leader, b">>> ")
        assert process.poll() is None
        os.write(leader, b"/exit\n")
        assert process.wait(timeout=60) == 0
    os.close(leader)


def read_until(descriptor: int, end: bytes) -> bytes:
    """What the terminal shows until `end`, which must come."""
    shown = b""
    while not shown.endswith(end):
        shown += os.read(descriptor, 1)
    return shown


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bench", "offline", "-w", "W9"], "There is no workload 'W9'"),
        (["bench", "offline", "--input-len", "x"], "--input-len must be a number of tokens"),
        (["bench", "serve", "--url", "nowhere"], "--url must be an address"),
        (["bench", "serve", "--url", "http://127.0.0.1:9"], "http://127.0.0.1:9 cannot be reached"),
        (["bench", "serve", "--endpoint", "x"], "--endpoint must be completions or chat"),
    ],
)
def test_a_benchmark_that_cannot_run_says_so_at_once(arguments: list[str], complaint: str) -> None:
    done = penstock(*arguments)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith(f"penstock: {complaint}")
    assert done.stderr.count("\n") == 1
