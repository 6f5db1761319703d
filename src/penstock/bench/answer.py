"""One streamed answer: its events as they arrive, and what they say of the tokens' times.

The load generator shares a machine with the server it measures, so an event costs about a
microsecond: fields that are not needed are skipped, not built.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from penstock.bench.progress import Progress
from penstock.bench.statistics import Timing
from penstock.bench.target import LINE_BYTES

SHOWN_BYTES = 300  # of a server's words in an error


class _Delta(Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Details(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Event(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class Answer:
    """Fed with the bytes of a response's body; keeps the timing of its request."""

    __slots__ = ("_progress", "_rest", "done", "last", "status", "timing")

    def __init__(self, timing: Timing, progress: Progress, now: float) -> None:
        self.timing = timing
        self.status = 200
        self.done = False  # [DONE] has come
        self.last = now  # of the last token, or of sending
        self._progress = progress
        self._rest = b""

    def feed(self, data: bytes, now: float) -> None:
        if self._rest:
            data = self._rest + data
        if self.status != 200:
            self._rest = data[:LINE_BYTES]
            return
        lines = data.split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:], now)
        if len(self._rest) > LINE_BYTES:
            self._rest = b""
            self._fail(f"An event is longer than {LINE_BYTES} bytes.")

    def end(self, now: float) -> None:
        """The response is complete; an end without [DONE] is an error."""
        if self.status != 200:
            self._fail(f"{self.status}: {self._rest.decode('utf-8', 'replace')[:SHOWN_BYTES]}")
        elif self._rest.startswith(b"data:"):
            self._event(self._rest[5:], now)
        if not self.done:
            self._fail("The stream ended without [DONE].")
        if self.timing.ended is None:
            self.timing.ended = now

    def _event(self, data: bytes, now: float) -> None:
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            if data.strip() == b"[DONE]":
                self.done = True
                self.timing.ended = now
            else:
                self._fail(
                    f"An event cannot be read: {data.decode('utf-8', 'replace').strip()[:SHOWN_BYTES]}"
                )
            return
        if event.error:
            self._fail(str(event.error)[:SHOWN_BYTES])
        for choice in event.choices or ():
            if _is_token(choice):
                self.last = now
                self.timing.tokens_at.append(now)
                self.timing.output_tokens += 1
                self._progress.tokens += 1
        if event.usage is not None:
            self._believe(event.usage)

    def _believe(self, usage: _Usage) -> None:
        """The server's own count: a chunk may carry several tokens."""
        timing = self.timing
        counted = usage.completion_tokens or timing.output_tokens
        self._progress.tokens += counted - timing.output_tokens
        timing.output_tokens = counted
        timing.input_tokens = usage.prompt_tokens or timing.input_tokens
        if usage.prompt_tokens_details is not None:
            timing.cached_tokens = usage.prompt_tokens_details.cached_tokens or 0

    def _fail(self, sentence: str) -> None:
        """The first failure is the one to tell."""
        self.timing.error = self.timing.error or sentence


def _is_token(choice: _Choice) -> bool:
    if choice.text is not None:
        # A text that is empty is a token still (half a character), unless it only closes the answer.
        return bool(choice.text) or not choice.finish_reason
    delta = choice.delta
    return delta is not None and bool(delta.content or delta.reasoning_content or delta.reasoning)
