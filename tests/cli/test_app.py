"""The command's manners: help, exit codes, and one sentence for a mistake."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import __version__
from penstock.cli.app import run
from penstock.errors import EngineUnavailableError, ModelError


@pytest.fixture(autouse=True)
def clean_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PENSTOCK_") and name != "PENSTOCK_HOME"]:
        monkeypatch.delenv(name)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("penstock: ")
    assert output.err.count("\n") == 1
    return output.err


@pytest.mark.parametrize(
    "command",
    [
        "serve",
        "chat",
        "complete",
        "pull",
        "doctor",
        "bench offline",
        "bench serve",
        "bench sweep",
        "bench embed",
    ],
)
def test_every_command_has_help_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples" in text
    assert f"penstock {command}" in text.split("Examples")[1]


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    output = capsys.readouterr()
    assert "Usage: penstock" in output.out + output.err
    assert "penstock: " not in output.err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"
    assert run(["version"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"penstock {__version__}\npython 3.")
    assert "torch " in text


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "--version"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"penstock {__version__}\n", "")


def test_an_unknown_flag_is_named_with_its_neighbours(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "serve", "--prot", "9")
    assert "--prot" in message
    assert "--port" in message
    assert message.endswith("see `penstock serve --help`.\n")


@pytest.mark.parametrize(
    "arguments",
    [["frobnicate"], ["serve", "--port"], ["serve", "a", "b"], ["complete", "x", "--max-tokens", "few"]],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "--help`." in refused(capsys, *arguments)


def test_a_wrong_value_names_the_flag_as_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--max-num-seqs must be a whole number" in refused(capsys, "serve", "--max-num-seqs", "many")
    assert "got 0 (set by --max-running)" in refused(capsys, "serve", "--max-running", "0")


def test_a_mistake_in_the_environment_or_the_file_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("penstock.yaml").write_text("max_modle_len: 1\n")
    assert "is not a known key; the nearest known one is 'max_model_len'" in refused(capsys, "serve")
    Path("penstock.yaml").unlink()
    monkeypatch.setenv("PENSTOCK_PORT", "http")
    assert "PENSTOCK_PORT must be a whole number" in refused(capsys, "serve")


def test_sampling_out_of_range_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert "temperature must be between 0 and 2, got 3.0" in refused(capsys, "complete", "x", "-t", "3")


@pytest.mark.parametrize("name", ["nowhere.gguf", "weights.bin", "weights.pth"])
def test_a_model_that_cannot_be_served_is_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not name.startswith("nowhere"):
        Path(name).write_bytes(b"\x80\x02")
    message = refused(capsys, "complete", "x", "--model", f"./{name}")
    assert name in message


def test_a_file_that_is_not_a_model_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.gguf").write_bytes(b"GGUF" + bytes(20))
    refused(capsys, "complete", "x", "--model", "./broken.gguf")


def test_an_engine_that_fails_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(settings: object, reread: object) -> None:
        raise EngineUnavailableError("The engine stopped.")

    monkeypatch.setattr("penstock.gateway.server.run", fail)
    assert run(["serve"]) == 1
    assert capsys.readouterr().err == "penstock: The engine stopped.\n"


def test_a_model_error_is_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(settings: object, reread: object) -> None:
        raise ModelError("There is no such model.")

    monkeypatch.setattr("penstock.gateway.server.run", fail)
    assert refused(capsys, "serve") == "penstock: There is no such model.\n"


def test_a_bug_is_not_dressed_up_as_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(settings: object, reread: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("penstock.gateway.server.run", fail)
    with pytest.raises(ZeroDivisionError):
        run(["serve"])


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        "penstock.gateway.server.run", lambda settings, reread: os.kill(os.getpid(), signal.SIGINT)
    )
    # A shell starts background jobs with the signal ignored.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert run(["serve"]) == 130
    finally:
        signal.signal(signal.SIGINT, former)
    assert capsys.readouterr().err == ""


def test_missing_torch_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "install penstock[engine]" in refused(capsys, "serve")


# A command that prints more than a pipe holds.
FLOOD = """
import sys
from penstock.cli.app import app, main
@app.command()
def flood() -> None:
    print("x" * 2**20)
sys.argv = ["penstock", "flood"]
main()
"""


def test_a_reader_that_leaves_ends_it_quietly() -> None:
    environ = {**os.environ, "FLOOD": FLOOD}
    command = f'"{sys.executable}" -c "$FLOOD" | head -c 1'
    done = subprocess.run(command, shell=True, env=environ, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("x", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("command", ["version", "doctor", "--help"])
def test_output_that_cannot_be_written_is_one_sentence(command: str, buffered: bool) -> None:
    environ = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
            timeout=60,
        )
    sentence = "penstock: The output cannot be written: No space left on device.\n"
    assert (done.returncode, done.stderr) == (1, sentence)


def test_a_failure_that_is_not_the_outputs_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(settings: object, reread: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("penstock.gateway.server.run", fail)
    with pytest.raises(OSError, match="No space left"):
        run(["serve"])


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_no_obstacle(closed: str) -> None:
    done = subprocess.run(
        f'"{sys.executable}" -m penstock version {closed}',
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("penstock ") is (closed == "2>&-")


def test_a_complaint_goes_nowhere_else_if_there_is_no_place_for_it() -> None:
    command = f'"{sys.executable}" -m penstock frobnicate 2>&-'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")


def test_output_that_is_no_terminal_has_no_colours() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "serve", "--help"], capture_output=True, timeout=60
    )
    assert b"\x1b" not in done.stdout


def test_no_color_is_honoured_on_a_terminal() -> None:
    colours = {}
    for value in ("", "1"):
        leader, follower = pty.openpty()
        environ = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": value}
        with subprocess.Popen(
            [sys.executable, "-m", "penstock", "--help"], stdout=follower, env=environ
        ) as process:
            os.close(follower)
            output = b""
            while chunk := _read(leader):
                output += chunk
            os.close(leader)
        assert process.returncode == 0
        colours[value] = any(f"\x1b[{code}m".encode() in output for code in ("1;36", "36", "33", "1;33"))
    assert colours == {"": True, "1": False}


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side has closed
        return b""


HANG_UP = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
from penstock.cli import main

class HangUp:
    def find_spec(self, name, path=None, target=None):
        if name == "penstock.cli.app":
            os.kill(os.getpid(), signal.SIGHUP)

sys.meta_path.insert(0, HangUp())
sys.argv = ["penstock", *sys.argv[1:]]
main()
"""


def test_a_server_that_is_told_to_reload_while_it_is_still_being_imported_goes_on() -> None:
    def told(command: str) -> int:
        return subprocess.run(
            [sys.executable, "-c", HANG_UP, command, "--help"], capture_output=True
        ).returncode

    assert told("serve") == 0
    assert told("usage") == -signal.SIGHUP, "others end when their terminal does"
