"""The command as a user runs it: on this machine, without torch, for one model, for a script."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.app import run
from tests.engine.tiny import save_tiny_llama
from tests.test_contracts import HIDE

DOCUMENT = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def clean_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in [name for name in os.environ if name.startswith("PENSTOCK_") and name != "PENSTOCK_HOME"]:
        monkeypatch.delenv(name)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects, or asks for a name, fails the test."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the doctor went to the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)


@pytest.mark.usefixtures("offline")
def test_a_machine_that_can_serve_says_so(default_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert lines[-1] == "This machine can serve."
    for heading in ("Machine", "Software", "Serving", "Model default"):
        assert heading in lines
    assert "type: penstock serve default" in output.out
    assert "0.1 B   SmolLM2-135M" in output.out
    assert output.err == ""
    assert "\x1b" not in output.out
    # Paths are as long as they are, and what is to be typed is never broken; the rest keeps to the width.
    too_long = [line for line in lines if len(line) > 80 and "type:" not in line and "/" not in line]
    assert too_long == []


def test_a_model_is_read_and_its_verdict_told(
    tmp_path: Path, default_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "some model.gguf").symlink_to(default_model)
    assert run(["doctor", "some model.gguf", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["can_serve"] is True
    (model,) = [entry for entry in report["models"] if entry["name"] == "some model.gguf"]
    assert model["servable"] is True
    assert model["header"]["size"]["context"] == 8192
    assert model["fit"]["verdict"] == "fits"
    assert report["findings"][-1]["command"] == "penstock serve 'some model.gguf'"
    for key in report:
        assert f"`{key}`" in DOCUMENT, key
    for part in ("machine", "torch", "kernels", "configuration", "budget"):
        for key in report[part]:
            assert f"`{key}`" in DOCUMENT, key
    for entry in (report["findings"][0], model, model["header"], model["header"]["size"], model["fit"]):
        for key in entry:
            assert f"`{key}`" in DOCUMENT, key


def test_a_model_that_the_engine_refuses_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_tiny_llama(tmp_path / "other", architectures=["SomethingForCausalLM"])
    assert run(["doctor", "./other"]) == 1
    text = capsys.readouterr().out
    assert "SomethingForCausalLM" in text
    assert "penstock serve" not in text
    prevented = " ".join(text.split("prevented by: ")[1].split())
    assert prevented == "architecture (Model ./other), tokenizer (Model ./other)."


def test_a_model_that_is_nowhere_is_exit_code_1_and_the_rest_is_still_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # quicker, and one problem more
    assert run(["doctor", "./nowhere.gguf"]) == 1
    text = capsys.readouterr().out
    assert "There is nothing at nowhere.gguf" in text
    assert "processor" in text
    assert "prevented by: torch (Software), model (Model ./nowhere.gguf)." in text


def test_a_hub_model_that_was_not_fetched_is_a_note(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert run(["doctor", "org/name", "--json"]) == 0
    finding = json.loads(capsys.readouterr().out)["findings"][-1]
    assert (finding["status"], finding["command"]) == ("note", "penstock pull org/name")


def test_it_runs_where_torch_was_never_installed(default_model: Path) -> None:
    program = HIDE.format(hidden=("torch",)) + (
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'torch' else find(name)\n"
        "from penstock.cli.app import run\n"
        "code = run(['doctor'])\n"
        "assert 'torch' not in sys.modules\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    assert "torch is not installed" in done.stdout
    assert "[engine]" in done.stdout
    assert "Whether Penstock runs it is not" in done.stdout
    assert done.stdout.endswith("Serving is prevented by: torch (Software).\n")


@pytest.mark.parametrize(("name", "size"), [("SmolLM2-135M", "93 MB"), ("minilm", "84 MB")])
def test_a_model_that_is_fetched_by_name_says_how_much_that_is(
    name: str, size: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # quicker
    assert run(["doctor", name, "--json"]) == 1
    finding = json.loads(capsys.readouterr().out)["findings"][-1]
    assert (finding["status"], finding["command"]) == ("note", f"penstock pull {name}")
    assert size in finding["sentence"]


def test_a_narrow_terminal_is_no_obstacle(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # quicker
    assert run(["doctor"]) == 1
    assert "processor" in capsys.readouterr().out


def test_statuses_are_coloured_on_a_terminal_unless_that_is_not_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # quicker
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert run(["doctor"]) == 1
    assert "\x1b[32mok" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(["doctor"]) == 1
    assert "\x1b[3" not in capsys.readouterr().out


@pytest.mark.parametrize("hidden", ["gguf", "numpy"])
def test_a_package_that_is_missing_is_named_and_the_rest_is_still_told(
    hidden: str, default_model: Path
) -> None:
    program = HIDE.format(hidden=(hidden,)) + (
        "from penstock.cli.app import run\n"
        "import importlib.util\n"
        "importlib.util.find_spec = lambda name: None\n"  # no torch: quicker
        "sys.exit(run(['doctor', *sys.argv[1:], '--json']))\n"
    )
    for arguments in ([], [str(default_model)]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (1, "")
        told = [
            entry for entry in json.loads(done.stdout)["findings"] if "the package gguf" in entry["sentence"]
        ]
        assert "problem" in [finding["status"] for finding in told]
        assert all(f"No module named '{hidden}'" in finding["sentence"] for finding in told)


def test_in_a_folder_that_was_deleted_it_is_the_folder_that_is_blamed(
    tmp_path: Path, default_model: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"import os; os.rmdir({str(gone)!r})\nfrom penstock.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--json"],
        cwd=gone,
        capture_output=True,
        text=True,
        timeout=60,
    )
    report = json.loads(done.stdout)
    (problem,) = [finding for finding in report["findings"] if finding["status"] == "problem"]
    assert (problem["name"], problem["command"]) == ("folder", "cd")
    assert "deleted" in problem["sentence"]
    assert report["torch"] is not None
    assert (done.returncode, done.stderr) == (1, "")
