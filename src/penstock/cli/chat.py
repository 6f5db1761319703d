"""`penstock chat`: a conversation in the terminal, or one answer for each line of stdin."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import ENGINE_OPTIONS, configured, examples
from penstock.cli.sampling import ApiKey, MaxTokens, Seed, Temperature, TopP, Url
from penstock.config import Settings
from penstock.engine.request import SamplingParams
from penstock.errors import ContextLengthError, InvalidRequestError, PenstockError

if TYPE_CHECKING:
    from penstock.cli.sources import Messages, Source

EPILOG = examples(
    ("penstock chat", "with the default model, loaded here"),
    ("penstock chat --url http://127.0.0.1:8000", "with a running server"),
    ('echo "Name three rivers." | penstock chat -t 0', "one answer for each line"),
)
COMMANDS = (
    "/reset forgets the conversation, /system TEXT gives instructions, /exit leaves; Ctrl-C stops an answer."
)


@configured("chat_template", "reasoning_parser", *ENGINE_OPTIONS)
def chat(
    settings: Settings,
    named: str | None,
    system: Annotated[
        str | None, typer.Option("--system", "-s", metavar="TEXT", help="Instructions for the model.")
    ] = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.7,
    top_p: TopP = 1.0,
    seed: Seed = None,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Talk with a model."""
    from penstock.cli.sources import open_source

    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    with open_source(settings, url, api_key, named=named) as source:
        conversation = Conversation(source, params, system)
        if sys.stdin.isatty():
            print(f"{source.name}. {COMMANDS}", file=sys.stderr)
            lines = _typed()
        else:
            lines = (line.rstrip("\n") for line in sys.stdin)
        for line in lines:
            if line.strip() == "/exit":
                break
            if line.strip():
                conversation.hear(line)
    if conversation.refused and not sys.stdin.isatty():
        raise typer.Exit(2)  # a script must learn that a line went unanswered


class Conversation:
    """The history, and what a line typed by the user does to it."""

    def __init__(self, source: Source, params: SamplingParams, system: str | None) -> None:
        self._source = source
        self._params = params
        self._system = system
        self.messages: Messages = []
        self.refused = 0  # questions that could not be answered
        self._reset()

    def hear(self, line: str) -> None:
        command, _, rest = line.strip().partition(" ")
        if command == "/reset":
            self._reset()
        elif command == "/system":
            self._system = rest.strip() or None
            self._reset()
        elif command.startswith("/") and "/" not in command[1:]:
            print(f"There is no {command} here. {COMMANDS}", file=sys.stderr)
        else:
            self._answer(line)

    def _reset(self) -> None:
        self.messages = [{"role": "system", "content": self._system}] if self._system else []

    def _answer(self, question: str) -> None:
        from penstock.cli.sources import Answer, Thought

        self.messages.append({"role": "user", "content": question})
        pieces: list[str] = []
        show = _Printer()
        try:
            with _interruption() as interruption:
                stream = self._source.stream(self.messages, self._params, Answer())
                for piece in stream:
                    if isinstance(piece, Thought):
                        show.thought(piece)
                    else:
                        pieces.append(piece)
                        show.answer(piece)
                    if interruption.wanted:
                        stream.close()  # type: ignore[attr-defined]
                        break
        except KeyboardInterrupt:
            pass
        except InvalidRequestError as error:
            # The conversation goes on without the question that cannot be answered.
            self.messages.pop()
            self.refused += 1
            advice = " Use /reset to begin anew." if isinstance(error, ContextLengthError) else ""
            print(f"{error}{advice}", file=sys.stderr)
            return
        except PenstockError:
            print()
            raise
        print()
        self.messages.append({"role": "assistant", "content": "".join(pieces)})


class _Printer:
    """Prints an answer as it comes. What the model thinks first is dimmed, and only for a reader's eyes."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._dim, self._normal = ("", "") if os.environ.get("NO_COLOR") else ("\033[2m", "\033[0m")
        self._thinking = False

    def thought(self, text: str) -> None:
        if self._terminal:
            self._thinking = True
            print(f"{self._dim}{text}{self._normal}", end="", flush=True)

    def answer(self, text: str) -> None:
        if self._thinking and text:
            self._thinking = False
            print("\n")
        print(text, end="", flush=True)


class _Interruption:
    wanted = False


@contextmanager
def _interruption() -> Iterator[_Interruption]:
    """The first Ctrl-C asks for the end of the answer between two tokens; the second does not wait."""
    interruption = _Interruption()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if interruption.wanted:
            raise KeyboardInterrupt
        interruption.wanted = True

    former = signal.signal(signal.SIGINT, on_signal)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, former)


def _typed() -> Iterator[str]:
    with suppress(ImportError):
        import readline  # noqa: F401 - gives input() line editing and history
    while True:
        try:
            yield input(">>> ")
        except KeyboardInterrupt:
            print("\n/exit or Ctrl-D leaves.", file=sys.stderr)
        except EOFError:
            print(file=sys.stderr)
            return
