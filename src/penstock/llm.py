"""The Python API: the engine in this process, without a server.

from penstock import LLM, SamplingParams

with LLM() as llm:
    for output in llm.generate(["The sky is"], SamplingParams(max_tokens=20)):
        print(output.outputs[0].text)
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.request import (
    EngineStats,
    FinishReason,
    Request,
    SamplingParams,
    TokenEvent,
    TokenLogprobs,
)
from penstock.errors import InvalidRequestError, PenstockError, QueueFullError
from penstock.hub import resolve
from penstock.text.chat import ChatTemplate
from penstock.text.choice import Choice
from penstock.text.template_file import template_from
from penstock.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]
Message = Mapping[str, Any]
_OPTIONS = {option.name for option in fields(EngineConfig)} - {"model"}


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One choice of a prompt."""

    index: int
    text: str
    token_ids: list[int]  # everything generated, the token that ended it included
    logprobs: list[TokenLogprobs]  # of the tokens before the one that ended it; empty unless asked for
    finish_reason: FinishReason | None
    stop_reason: int | str | None  # the stop token or string, of those in SamplingParams, that ended it


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A prompt and its choices: `outputs[0].text`."""

    request_id: str
    prompt: str | None  # None if it was given as token ids or messages
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    cached_tokens: int  # prompt tokens that were not computed


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """New text of one choice."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None


class LLM:
    """A model, loaded and ready. Options are the fields of `EngineConfig`.

    `chat_template`, a file or the template itself, takes the place of the model's own.
    """

    def __init__(
        self, model: str = "default", *, chat_template: str | Path | None = None, **options: Any
    ) -> None:
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise TypeError(f"LLM has no option {', '.join(unknown)}; it has {', '.join(sorted(_OPTIONS))}.")
        template = None if chat_template is None else template_from(chat_template)
        files = resolve(model, progress=_Stages() if sys.stderr.isatty() else None)
        self.name = files.name
        self.tokenizer = Tokenizer.load(files, chat_template=template)
        config = EngineConfig(model=str(files.path), **options)
        self.engine = EngineCore(config)
        self._template: ChatTemplate | None = None
        self._serial = itertools.count()
        self._open: dict[str, _Running] = {}

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool | None = None,
    ) -> list[RequestOutput]:
        """Complete prompts, given as text or token ids; answers in the order of the prompts.

        `progress` None shows a bar when standard error is a terminal.
        """
        batch = _as_batch(prompts)
        if sampling_params is None or isinstance(sampling_params, SamplingParams):
            params = [sampling_params or SamplingParams()] * len(batch)
        else:
            params = list(sampling_params)
        if len(params) != len(batch):
            raise InvalidRequestError(
                f"{len(batch)} prompts were given with {len(params)} sampling parameters."
            )
        started = [self._prepare(prompt, each) for prompt, each in zip(batch, params, strict=True)]
        return self._finish(started, progress)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | None = None,
        *,
        progress: bool | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation, or several at once."""
        several = bool(messages) and not isinstance(messages[0], Mapping)
        conversations: Any = messages if several else [messages]
        prompts = [self._render(conversation) for conversation in conversations]
        return self.generate(prompts, sampling_params, progress=progress)

    def stream(
        self, prompt: Prompt | Sequence[Message], sampling_params: SamplingParams | None = None
    ) -> Iterator[StreamChunk]:
        """Text as it is generated, for one prompt or one conversation. Stop iterating to stop generating."""
        is_chat = not isinstance(prompt, str) and bool(prompt) and isinstance(prompt[0], Mapping)
        ids: Any = self._render(prompt) if is_chat else prompt
        running = self._prepare(ids, sampling_params or SamplingParams())
        chunks: deque[StreamChunk] = deque()
        running.chunks = chunks
        self._submit(running)
        try:
            while not running.finished or chunks:
                if chunks:
                    yield chunks.popleft()
                else:
                    self._step()
        finally:
            self._abandon(running)

    def stats(self) -> EngineStats:
        return self.engine.stats()

    def close(self) -> None:
        """Let go of the model's memory; streams that are still open end with an error."""
        for running in self._open.values():
            running.error = PenstockError("The LLM was closed before this was complete.")
        self._open.clear()
        self.__dict__.pop("engine", None)

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _render(self, messages: Any) -> list[int]:
        if self._template is None:
            self._template = ChatTemplate(self.tokenizer.chat_template, self.tokenizer)
        return self._template.encode([dict(message) for message in messages])

    def _prepare(self, prompt: Prompt, params: SamplingParams) -> _Running:
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        request = Request(
            id=f"llm-{next(self._serial)}",
            prompt=ids,
            params=params,
            eos_token_ids=self.tokenizer.eos_token_ids,
        )
        return _Running(request, prompt if isinstance(prompt, str) else None, self.tokenizer)

    def _submit(self, running: _Running) -> None:
        self.engine.submit(running.request)
        self._open[running.request.id] = running

    def _finish(self, started: list[_Running], progress: bool | None) -> list[RequestOutput]:
        """Run all of them to their ends, as many at once as the engine takes."""
        waiting = deque(started)
        running: list[_Running] = []
        try:
            with _ProgressBar(progress, len(started)) as advance:
                while waiting or running:
                    self._submit_what_fits(waiting, running)
                    self._step()
                    for ended in [each for each in running if each.finished]:
                        running.remove(ended)
                        advance(ended.num_tokens)
        finally:
            for each in running:
                self._abandon(each)
        return [each.output() for each in started]

    def _submit_what_fits(self, waiting: deque[_Running], running: list[_Running]) -> None:
        while waiting:
            try:
                self._submit(waiting[0])
            except QueueFullError:
                if not self.engine.has_work:
                    raise
                return
            running.append(waiting.popleft())

    def _step(self) -> None:
        """One step for everybody; each request gets its own events, whoever asked for the step."""
        for event in self.engine.step():
            running = self._open.get(event.request_id)
            if running is None:
                continue
            if running.take(event):
                self.engine.cancel(event.request_id, event.index)
            if running.over:
                del self._open[event.request_id]

    def _abandon(self, running: _Running) -> None:
        if self._open.pop(running.request.id, None) is not None:
            self.engine.cancel(running.request.id)


class _Running:
    """A request on its way: its choices so far, and the chunks that its reader has not taken yet."""

    def __init__(self, request: Request, prompt: str | None, tokenizer: Tokenizer) -> None:
        self.request = request
        self.chunks: deque[StreamChunk] | None = None  # kept only for a reader
        self.error: PenstockError | None = None
        self._prompt = prompt
        self._cached = 0
        self._choices = [Choice(index, tokenizer, request.params) for index in range(request.params.n)]

    @property
    def over(self) -> bool:
        return self.error is not None or all(choice.finish_reason is not None for choice in self._choices)

    @property
    def finished(self) -> bool:
        """Whether everything has come. Raises what ended it, if that was an error."""
        if self.error is not None:
            raise self.error
        return self.over

    @property
    def num_tokens(self) -> int:
        return sum(len(choice.token_ids) for choice in self._choices)

    def take(self, event: TokenEvent) -> bool:
        """Take the engine's next event; whether the engine must now be told that this choice has ended."""
        if event.finish_reason == "error":
            self.error = PenstockError(event.error or "The engine failed while computing this request.")
            return False
        choice = self._choices[event.index]
        known = len(choice.token_ids)
        self._cached = max(self._cached, event.cached_tokens)
        text = choice.take(event)
        if self.chunks is not None:
            fresh = choice.token_ids[known:]
            self.chunks.append(StreamChunk(event.index, text, fresh, choice.finish_reason))
        return choice.cut

    def output(self) -> RequestOutput:
        outputs = [
            CompletionOutput(c.index, c.text, c.token_ids, c.logprobs, c.finish_reason, c.stop_reason)
            for c in self._choices
        ]
        return RequestOutput(self.request.id, self._prompt, self.request.prompt, outputs, self._cached)


def _as_batch(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if prompts and isinstance(prompts[0], int):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


class _Stages:
    """Says on a terminal what is being fetched, a line for each stage."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        if stage != self._last:
            self._last = stage
            sys.stderr.write(f"{stage}\n")


class _ProgressBar:
    """A progress bar on a terminal, or nothing; yields a function to call with the tokens of each answer."""

    def __init__(self, wanted: bool | None, total: int) -> None:
        self._shown = sys.stderr.isatty() if wanted is None else wanted
        self._total = total
        self._tokens = 0

    def __enter__(self) -> Any:
        if not self._shown:
            return lambda tokens: None
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("Generating"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[rate]}"),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("", total=self._total, rate="")
        self._progress.start()
        return self._advance

    def _advance(self, tokens: int) -> None:
        self._tokens += tokens
        elapsed = self._progress.tasks[0].elapsed or 1e-9
        self._progress.update(self._task, advance=1, rate=f"{self._tokens / elapsed:.0f} tokens/s")

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._progress.stop()
