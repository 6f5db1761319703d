"""`penstock bench quality`: a text read in two precisions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.bench.result import read_result
from penstock.cli.app import run
from tests.gateway.door import save_tiny_chat

TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all. " * 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_chat(tmp_path_factory.mktemp("quality"))


@pytest.fixture
def command(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text(TEXT)
    options = "--precision bfloat16 --kv-cache-memory 4MiB --threads 1 --text mine.txt --context 48"
    return ["bench", "quality", str(model), *options.split()]


def test_two_precisions_are_compared_and_everything_is_written(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--limit", "50", "--json", "a.json", "--html", "a.html"]) == 0
    shown = capsys.readouterr().out
    assert "bfloat16 against float32" in shown
    assert "The perplexity is within the limit of 50%." in shown
    content = read_result("a.json")
    assert [each["precision"] for each in content["runs"]] == ["bfloat16", "float32"]
    assert content["subject"]["text"] == "mine.txt"
    assert content["quality"]["pieces"] > 2
    assert 0 < content["quality"]["absolute_difference"] < 0.1
    assert "bfloat16 against float32" in Path("a.html").read_text()


def test_a_precision_beyond_the_limit_ends_with_status_1(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the sides exchanged one of them is worse than nothing allows, whichever it is."""
    exchanged = ["float32" if word == "bfloat16" else word for word in command] + ["--against", "bfloat16"]
    codes = {run([*each, "--limit", "0", "--json", "-"]) for each in (command, exchanged)}
    assert codes == {0, 1}
    assert "worse than the limit of 0% allows" in capsys.readouterr().err


def test_what_is_the_same_is_said(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--against", "bfloat16", "--json", "-"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["quality"]["difference"] == 0
    assert "Both computed in bfloat16; name another one with --precision." in shown.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            "--against int3",
            "--against must be one of auto, int8, float32, bfloat16, float16, fp8, got 'int3'.",
        ),
        ("--text nowhere.txt", "--text names nowhere.txt, which cannot be read: No such file or directory."),
        ("--text binary", "--text names binary, which is not UTF-8 text; convert it first."),
        ("--text short", "The text has 1 tokens; give one of at least two"),
    ],
)
def test_a_mistake_is_one_sentence(
    options: str, sentence: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("binary").write_bytes(b"\xff\xfe\x00")
    Path("short").write_text("a")
    at = command.index("--text")
    given = [*command[:at], *command[at + 2 :]] if "--text" in options else command
    assert run([*given, *options.split()]) == 2
    assert sentence in capsys.readouterr().err


def test_a_model_that_does_not_generate_has_no_perplexity(
    embedding_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "quality", str(embedding_model), "--threads", "1"]) == 2
    assert "gives no text, so it has no perplexity" in capsys.readouterr().err


def test_ctrl_c_shows_what_was_read_so_far(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.engine.core import EngineCore

    steps, step = iter(range(1000)), EngineCore.step

    def impatient(core: EngineCore) -> object:
        if next(steps) == 2:
            raise KeyboardInterrupt
        return step(core)

    monkeypatch.setattr(EngineCore, "step", impatient)
    assert run([*command, "--max-step-tokens", "48", "--max-running", "1"]) == 130
    shown = capsys.readouterr().out
    assert "bfloat16" in shown
    assert "Stopped before both had read a piece" in shown
