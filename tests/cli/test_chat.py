"""A conversation: its history, its commands, and Ctrl-C in the middle of an answer."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Iterator

import pytest

from penstock.cli.chat import Conversation
from penstock.cli.sources import Answer, Messages, Thought
from penstock.engine.request import SamplingParams
from penstock.errors import ContextLengthError, EngineUnavailableError


class Parrot:
    """Answers with what it was asked last, word by word, and remembers what it was given."""

    name = "parrot"

    def __init__(self) -> None:
        self.asked: list[Messages] = []
        self.error: Exception | None = None
        self.interrupt_after: int | None = None
        self.given = 0

    def stream(self, prompt: str | Messages, params: SamplingParams, answer: Answer) -> Iterator[str]:
        assert not isinstance(prompt, str)
        self.asked.append(copy.deepcopy(prompt))
        if self.error:
            raise self.error
        for number, word in enumerate(prompt[-1]["content"].split()):
            self.given += 1
            if number == self.interrupt_after:
                os.kill(os.getpid(), signal.SIGINT)
            yield f"{word} "


@pytest.fixture
def parrot() -> Parrot:
    return Parrot()


def conversation(parrot: Parrot, system: str | None = None) -> Conversation:
    return Conversation(parrot, SamplingParams(), system)


def test_an_answer_is_printed_and_remembered(parrot: Parrot, capsys: pytest.CaptureFixture[str]) -> None:
    talk = conversation(parrot)
    talk.hear("one two")
    talk.hear("three")
    assert capsys.readouterr().out == "one two \nthree \n"
    assert parrot.asked[1] == [
        {"role": "user", "content": "one two"},
        {"role": "assistant", "content": "one two "},
        {"role": "user", "content": "three"},
    ]


class Thinker(Parrot):
    def stream(self, prompt: str | Messages, params: SamplingParams, answer: Answer) -> Iterator[str]:
        yield Thought("hm ")
        yield Thought("hm")
        yield from super().stream(prompt, params, answer)


def test_a_terminal_shows_reasoning_dimmed_above_the_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    talk = conversation(Thinker())
    talk.hear("yes")
    assert capsys.readouterr().out == "\033[2mhm \033[0m\033[2mhm\033[0m\n\nyes \n"
    assert talk.messages[-1] == {"role": "assistant", "content": "yes "}
    monkeypatch.setenv("NO_COLOR", "1")
    talk.hear("yes")
    assert capsys.readouterr().out == "hm hm\n\nyes \n"


def test_a_script_gets_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    conversation(Thinker()).hear("yes")
    assert capsys.readouterr().out == "yes \n"


def test_reset_forgets_all_but_the_instructions(parrot: Parrot) -> None:
    talk = conversation(parrot, system="Be brief.")
    talk.hear("one")
    talk.hear("/reset")
    talk.hear("two")
    assert parrot.asked[-1] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "two"},
    ]


def test_system_sets_the_instructions_and_begins_anew(parrot: Parrot) -> None:
    talk = conversation(parrot)
    talk.hear("one")
    talk.hear("/system Be rude.")
    talk.hear("two")
    assert parrot.asked[-1] == [{"role": "system", "content": "Be rude."}, {"role": "user", "content": "two"}]


def test_an_unknown_command_is_not_sent_to_the_model(
    parrot: Parrot, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation(parrot).hear("/rest")
    assert not parrot.asked
    assert "There is no /rest here. /reset forgets" in capsys.readouterr().err


def test_a_path_is_not_a_command(parrot: Parrot) -> None:
    conversation(parrot).hear("/usr/bin is a folder")
    assert len(parrot.asked) == 1


def test_ctrl_c_stops_the_answer_and_not_the_program(
    parrot: Parrot, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = conversation(parrot)
    parrot.interrupt_after = 1
    talk.hear("one two three four")
    assert capsys.readouterr().out == "one two \n"
    assert parrot.given == 2
    parrot.interrupt_after = None
    talk.hear("five")
    assert parrot.asked[-1][1] == {"role": "assistant", "content": "one two "}


def test_a_second_ctrl_c_does_not_wait_for_the_next_token(
    parrot: Parrot, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stuck(Parrot):
        def stream(self, prompt: str | Messages, params: SamplingParams, answer: Answer) -> Iterator[str]:
            yield "one "
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("went on after two interrupts")

    talk = conversation(Stuck())
    talk.hear("x")
    assert capsys.readouterr().out == "one \n"
    assert talk.messages[-1] == {"role": "assistant", "content": "one "}


def test_ctrl_c_means_what_it_meant_before_once_the_answer_is_complete(parrot: Parrot) -> None:
    before = signal.getsignal(signal.SIGINT)
    conversation(parrot).hear("one")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_conversation_too_long_for_the_model_goes_on_without_the_question(
    parrot: Parrot, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = conversation(parrot)
    parrot.error = ContextLengthError("The prompt has 9000 tokens.")
    talk.hear("very long")
    assert capsys.readouterr().err == "The prompt has 9000 tokens. Use /reset to begin anew.\n"
    assert talk.refused == 1
    parrot.error = None
    talk.hear("short")
    assert parrot.asked[-1] == [{"role": "user", "content": "short"}]


def test_a_lost_server_ends_the_conversation(parrot: Parrot) -> None:
    parrot.error = EngineUnavailableError("The server is gone.")
    with pytest.raises(EngineUnavailableError):
        conversation(parrot).hear("hello")
