"""Parting what a model thinks from what it answers.

A family of models marks its reasoning in one way: one row of `FAMILIES`. Reasoning stands at the beginning of
an answer, once; the same marks further on are text. White space around the marks belongs to neither part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.text.tokenizer import Tokenizer

PROMPT_END_TOKENS = 32  # enough for what a template puts behind the last message


@dataclass(frozen=True, slots=True)
class Family:
    """How models of one kind mark their reasoning."""

    name: str
    begins: tuple[str, ...]
    ends: tuple[str, ...]
    aliases: tuple[str, ...] = ()

    def opened_by(self, prompt_end: str) -> bool:
        """Whether the prompt itself has opened the reasoning, so that the answer begins inside."""
        return prompt_end.rstrip().endswith(self.begins)


FAMILIES = (
    Family("mistral", ("[THINK]",), ("[/THINK]",), ("magistral",)),
    Family(
        "granite",
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
    ),
    Family("think", ("<think>",), ("</think>",), ("qwen3", "deepseek_r1", "smollm3")),
)
CHOICES = ("auto", "none", *(name for family in FAMILIES for name in (family.name, *family.aliases)))


def check_parser(setting: str) -> None:
    if setting not in CHOICES:
        raise ConfigError(f"reasoning_parser must be one of {', '.join(CHOICES)}, got {setting!r}.")


def find_family(setting: str, template: str | None) -> Family | None:
    """The family that `setting` names; for "auto" the one whose marks the chat template itself uses."""
    check_parser(setting)
    for family in FAMILIES:
        if setting in (family.name, *family.aliases):
            return family
        marks = (*family.begins, *family.ends)
        if setting == "auto" and template is not None and any(mark in template for mark in marks):
            return family
    return None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What there is to part in one answer."""

    family: Family
    before: str = ""  # what of the message is in the prompt already


def reasoning_of(
    family: Family | None, tokenizer: Tokenizer, prompt: list[int], continued: Mapping[str, Any] | None
) -> Reasoning | None:
    """Of the answer to this prompt; `continued` is a last message that goes on."""
    if family is None:
        return None
    if continued is not None:
        if continued.get("role") != "assistant":
            return None  # a model that goes on as somebody else does not reason
        content = continued.get("content") or ""
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        return Reasoning(family, text)
    end = tokenizer.decode(prompt[-PROMPT_END_TOKENS:], skip_special=False)
    return Reasoning(family, family.begins[0] if family.opened_by(end) else "")


class Parts(NamedTuple):
    """New text of an answer: first what was thought, then what is answered."""

    reasoning: str
    text: str


class _State(Enum):
    UNDECIDED = 0  # nothing yet but white space and the beginning of a mark
    INSIDE = 1
    ANSWER = 2


class Splitter:
    """Text in, in pieces of any size; parts out. Text that may be or become a mark is held back."""

    def __init__(self, reasoning: Reasoning) -> None:
        self._family = reasoning.family
        self._state = _State.UNDECIDED
        self._held = ""
        self._bare = True  # nothing of the present part has come but white space
        self.push(reasoning.before)
        self._held = ""  # it is there already, and is not said again
        self.reasoned = self._state is _State.INSIDE  # whether there was any reasoning

    @property
    def answering(self) -> bool:
        """Whether all that comes from now on is the answer."""
        return self._state is _State.ANSWER

    def push(self, text: str) -> Parts:
        self._held += text
        if self._state is _State.UNDECIDED:
            self._decide()
        thought = self._think() if self._state is _State.INSIDE else ""
        return Parts(thought, self._answer() if self._state is _State.ANSWER else "")

    def finish(self) -> Parts:
        """What was held back. Call once, after the last piece."""
        held, self._held = self._held, ""
        if self._state is _State.INSIDE:
            return Parts(held.strip() if self._bare else held.rstrip(), "")
        return Parts("", held)

    def _decide(self) -> None:
        text = self._held.lstrip()
        for mark in self._family.begins:
            if text.startswith(mark):
                self._state, self.reasoned = _State.INSIDE, True
                self._held = text[len(mark) :]
                return
        if not any(mark.startswith(text) for mark in self._family.begins):
            self._state, self._bare = _State.ANSWER, False

    def _think(self) -> str:
        text = self._held
        found = [(at + len(mark), at) for mark in self._family.ends if (at := text.find(mark)) >= 0]
        if found:
            end, at = min(found)
            thought, self._held = text[:at].rstrip(), text[end:]
        else:
            # White space is held back too: in front of the mark it belongs to nobody.
            thought = text[: len(text) - self._beginning_of_end(text)].rstrip()
            self._held = text[len(thought) :]
        if self._bare:
            thought = thought.lstrip()
            self._bare = not thought
        if found:
            self._state, self._bare = _State.ANSWER, True
        return thought

    def _answer(self) -> str:
        text, self._held = self._held, ""
        if self._bare:
            text = text.lstrip()
            self._bare = not text
        return text

    def _beginning_of_end(self, text: str) -> int:
        """Characters at the end of the text that may be the beginning of an end mark."""
        return max(
            (
                size
                for mark in self._family.ends
                for size in range(1, len(mark))
                if text.endswith(mark[:size])
            ),
            default=0,
        )
