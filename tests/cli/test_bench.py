"""The benchmarks as a user runs them: at a server, started by them or not, and interrupted."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.bench.processes import process_tree
from penstock.bench.server import end_tree
from penstock.cli.app import run

PROGRAM = Path(__file__).parents[1] / "bench" / "small_server.py"
QUICK = ("--no-ceilings", "--input-len", "4", "--output-len", "3")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def small_server(good: int) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Its address, and its process, which prints a line for each request."""
    command = [sys.executable, "-S", str(PROGRAM), "0", str(good)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", process
    finally:
        end_tree(process)
        process.stdout.close()


def result(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def test_a_server_is_started_measured_and_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port, path = free_port(), tmp_path / "out.json"
    command = f"{sys.executable} -S {PROGRAM} {port} 1000"
    code = run(
        ["bench", "serve", "--server", command, "--url", f"http://127.0.0.1:{port}", "--requests", "5",
         "--rate", "200", "--arrivals", "constant", "--slo", "e2e=60s", "--json", str(path), *QUICK]
    )  # fmt: skip
    output = capsys.readouterr()
    assert code == 0, output.err
    assert "ms after their moment at p99" in output.out
    (measured,) = result(path)["runs"]
    assert (measured["completed"], measured["requests"], measured["goodput"]["good"]) == (5, 5, 5)
    assert measured["startup_seconds"] > 0
    assert measured["peak_memory_bytes"] > 2**20
    assert result(path)["subject"]["model"] == "small"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))


def test_a_server_that_is_ended_takes_its_children_with_it() -> None:
    with small_server(1) as (_, process):
        tree = process_tree(process.pid)
        assert len(tree) == 2
    assert [process_tree(member) for member in tree] == [[], []]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--server", "false"], "The server of --server ended with status 1. It said nothing."),
        (
            ["--server", "no-such-program"],
            "--server cannot run 'no-such-program': No such file",
        ),
        (["--server", "'"], "--server cannot be read as a command, No closing quotation"),
        (["--server", "true", "--pid", "1"], "--server is measured by itself"),
        (["--pid", "4194999"], "--pid names process 4194999, which does not exist"),
        (["--url", "http://127.0.0.1:99999"], "--url must be an address"),
        (["--timeout", "soon"], "--timeout takes a time such as 500ms"),
        (["--trace", "x.jsonl", "-w", "W1"], "--trace has requests of its own, so --workload has no place"),
        (["--slo", "soon"], "--slo limits ttft, tpot, e2e"),
        (["--slo", ""], "--slo limits ttft, tpot, e2e"),
        (["--speed", "2"], "--speed plays a trace"),
        (["--server-timeout", "1m"], "--server-timeout is for a server that --server starts"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["bench", "serve", "--url", f"http://127.0.0.1:{free_port()}", *arguments, *QUICK[:1]])
    assert code in (1, 2)
    assert capsys.readouterr().err.startswith(f"penstock: {complaint}")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["offline", "--speed", "2"], "--speed plays a trace"),
        (["offline", "--batch-size", "4"], "--batch-size is of static batches; give --compare-static"),
        (["offline", "--slo", ""], "--slo limits ttft, tpot, e2e"),
        (["sweep", "--endpoint", "chat"], "--endpoint is for a server; without --url"),
        (["sweep", "--api-key", "k"], "--api-key is for a server; without --url"),
        (["sweep", "--timeout", "1m"], "--timeout is for a server; without --url"),
        (["sweep", "--pid", "1"], "--pid is for a server; without --url"),
        (["sweep", "--url", "http://127.0.0.1:9", "--threads", "1"], "--threads is for the engine of this"),
        (["sweep", "--url", "http://127.0.0.1:9", "--slo", ""], "--slo limits ttft, tpot, e2e"),
        (["embed", "--url", "http://127.0.0.1:9", "--precision", "int8"], "--precision is for the engine"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"penstock: {complaint}")


def test_a_server_that_runs_already_is_not_started_again(capsys: pytest.CaptureFixture[str]) -> None:
    with small_server(1) as (url, _):
        assert run(["bench", "serve", "--server", "true", "--url", url, "--no-ceilings"]) == 2
    assert "Something answers at" in capsys.readouterr().err


def test_answers_that_are_not_good_make_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    with small_server(2) as (url, process):
        code = run(
            ["bench", "serve", "--url", url, "--requests", "3", "--clients", "1", "--stall-timeout", "1s",
             "--pid", str(process.pid), "--json", str(path), *QUICK]
        )  # fmt: skip
    assert code == 1
    (measured,) = result(path)["runs"]
    assert (measured["completed"], measured["timeouts"]) == (2, 1)
    assert measured["peak_memory_bytes"] > 2**20
    assert "No token for 1 s." in capsys.readouterr().out


def test_a_sweep_goes_on_to_the_loads_given_and_says_where_it_is_saturated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    with small_server(1000) as (url, _):
        code = run(
            ["bench", "sweep", "--url", url, "--concurrency", "1,2", "--requests", "4", "--json", str(path),
             "--no-ceilings", "--input-len", "4,8", "--output-len", "3"]
        )  # fmt: skip
    output = capsys.readouterr()
    assert code == 0, output.err
    content = result(path)
    assert [(r["workload"], r["mode"], r["concurrency"], r["completed"]) for r in content["runs"]] == [
        ("4/3", "sweep", 1, 4), ("4/3", "sweep", 2, 4), ("8/3", "sweep", 1, 4), ("8/3", "sweep", 2, 4),
    ]  # fmt: skip
    assert [text.split(":")[0] for text in content["subject"]["saturation"]] == ["4/3", "8/3"]
    assert re.search(r"4/3 +2 +\d", output.err)  # the row came while the sweep went on
    assert "4/3: " in output.out


@pytest.mark.parametrize("command", ["serve", "sweep"])
def test_ctrl_c_shows_and_writes_what_was_measured_so_far(command: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    loads = ("--clients", "1") if command == "serve" else ("--concurrency", "1,2")
    with small_server(2) as (url, server):
        benchmark = subprocess.Popen(
            [sys.executable, "-m", "penstock", "bench", command, "--url", url, "--requests", "8",
             *loads, "--json", str(path), *QUICK],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert server.stdout is not None
        for _ in range(3):
            server.stdout.readline()
        benchmark.send_signal(signal.SIGINT)  # two answers were given, the third never will be
        output, errors = benchmark.communicate(timeout=60)
    assert benchmark.returncode == 130, errors
    (measured,) = result(path)["runs"]
    assert (measured["requests"], measured["completed"], measured["unfinished"]) == (3, 2, 1)
    assert "Throughput" in output
    assert "Traceback" not in errors


@pytest.mark.parametrize(("answers", "repeats"), [(1 + 3 + 1, 1), (2, 0)])
def test_ctrl_c_keeps_the_repeats_of_embeddings_that_have_ended(
    answers: int, repeats: int, tmp_path: Path
) -> None:
    path = tmp_path / "out.json"
    with small_server(answers) as (url, server):
        benchmark = subprocess.Popen(
            [sys.executable, "-m", "penstock", "bench", "embed", "--url", url, "--texts", "3",
             "--json", str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert server.stdout is not None
        for _ in range(answers + 1):
            server.stdout.readline()
        benchmark.send_signal(signal.SIGINT)
        output, errors = benchmark.communicate(timeout=60)
    assert benchmark.returncode == 130, errors
    assert "Traceback" not in errors
    if repeats:
        assert [len(one["seconds"]) for one in result(path)["runs"]] == [repeats, repeats]
        assert "all at once is" in output
    else:
        assert "Nothing was measured." in errors


def test_a_benchmark_that_is_killed_politely_ends_the_server_it_started() -> None:
    port = free_port()
    server = f"{sys.executable} -S {PROGRAM} {port} 0"  # which never gives its first answer
    benchmark = subprocess.Popen(
        [sys.executable, "-m", "penstock", "bench", "serve", "--server", server,
         "--url", f"http://127.0.0.1:{port}", *QUICK],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not listens(port):
        assert benchmark.poll() is None
        time.sleep(0.02)
    benchmark.terminate()
    _, errors = benchmark.communicate(timeout=60)
    assert benchmark.returncode == 130, errors
    assert not listens(port)


def test_ctrl_c_in_a_terminal_ends_an_offline_run_whose_figures_were_live(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    leader, follower = pty.openpty()
    command = [
        sys.executable, "-m", "penstock", "bench", "offline", "--requests", "2000", "--clients", "2",
        "--threads", "1", "--max-model-len", "64", "--json", str(path), *QUICK,
    ]  # fmt: skip
    environment = os.environ | {"COLUMNS": "120", "TERM": "xterm"}
    with subprocess.Popen(command, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        shown = b""
        while not re.search(rb"[1-9]\d*/2000 done, 2 in flight", shown):
            shown += os.read(leader, 4096)
        process.send_signal(signal.SIGINT)
        while b"Memory and start-up" not in shown:
            shown += os.read(leader, 4096)
        assert process.wait(60) == 130
    os.close(leader)
    assert b"tok/s," in shown
    (measured,) = result(path)["runs"]
    assert 0 < measured["completed"] < 2000
    assert measured["completed"] + measured["unfinished"] == measured["requests"]
    assert measured["peak_memory_bytes"] > 2**20
