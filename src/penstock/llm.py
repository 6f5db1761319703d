"""The Python API: the engine in this process, without a server.

from penstock import LLM, SamplingParams

with LLM() as llm:
    for output in llm.generate(["The sky is"], SamplingParams(max_tokens=20)):
        print(output.outputs[0].text)
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.request import (
    EngineStats,
    FinishReason,
    Request,
    SamplingParams,
    TokenEvent,
)
from penstock.errors import InvalidRequestError, PenstockError, QueueFullError
from penstock.hub import resolve
from penstock.text.chat import ChatTemplate
from penstock.text.choice import Choice
from penstock.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]
Message = Mapping[str, Any]


@dataclass(slots=True)
class RequestOutput:
    """A prompt and its choices: `outputs[0].text`, `.token_ids`, `.finish_reason`, `.logprobs`."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[Choice]
    cached_tokens: int = 0

    @property
    def finished(self) -> bool:
        return all(output.finish_reason is not None for output in self.outputs)


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """New text of one choice."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None


class LLM:
    """A model, loaded and ready. Options are the fields of `EngineConfig`."""

    def __init__(self, model: str = "default", **options: Any) -> None:
        files = resolve(model)
        self.name = files.name
        self.tokenizer = Tokenizer.load(files)
        try:
            config = EngineConfig(model=str(files.path), **options)
        except TypeError:
            known = ", ".join(name for name in EngineConfig.__dataclass_fields__ if name != "model")
            unknown = sorted(set(options) - set(EngineConfig.__dataclass_fields__))
            raise TypeError(f"LLM has no option {', '.join(unknown)}; it has {known}.") from None
        self.engine = EngineCore(config)
        self._template: ChatTemplate | None = None
        self._serial = itertools.count()
        self._open: dict[str, _Answer] = {}

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
        answers = [self._answer(prompt, each) for prompt, each in zip(batch, params, strict=True)]
        return self._run(answers, progress)

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
        answer = self._answer(ids, sampling_params or SamplingParams())
        self.engine.submit(answer.request)
        self._open[answer.request.id] = answer
        try:
            while not answer.output.finished:
                for event in self.engine.step():
                    chunk = self._take(event)
                    if chunk is not None and event.request_id == answer.request.id:
                        yield chunk
        finally:
            self.engine.cancel(answer.request.id)
            self._open.pop(answer.request.id, None)

    def stats(self) -> EngineStats:
        return self.engine.stats()

    def close(self) -> None:
        """Let go of the model's memory."""
        self.__dict__.pop("engine", None)

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _render(self, messages: Any) -> list[int]:
        if self._template is None:
            self._template = ChatTemplate(self.tokenizer.chat_template, self.tokenizer)
        return self._template.encode([dict(message) for message in messages])

    def _answer(self, prompt: Prompt, params: SamplingParams) -> _Answer:
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        request = Request(
            id=f"llm-{next(self._serial)}",
            prompt=ids,
            params=params,
            eos_token_ids=self.tokenizer.eos_token_ids,
        )
        return _Answer(request, prompt if isinstance(prompt, str) else None, self.tokenizer)

    def _run(self, answers: list[_Answer], progress: bool | None) -> list[RequestOutput]:
        waiting = list(reversed(answers))
        try:
            with _ProgressBar(progress, len(answers)) as advance:
                while waiting or self.engine.has_work:
                    self._submit_what_fits(waiting)
                    for event in self.engine.step():
                        answer = self._open.get(event.request_id)
                        self._take(event)
                        if answer is not None and answer.output.finished:
                            del self._open[event.request_id]
                            advance(sum(len(output.token_ids) for output in answer.output.outputs))
        except BaseException:
            for answer in answers:
                self.engine.cancel(answer.request.id)
                self._open.pop(answer.request.id, None)
            raise
        return [answer.output for answer in answers]

    def _submit_what_fits(self, waiting: list[_Answer]) -> None:
        while waiting:
            answer = waiting[-1]
            try:
                self.engine.submit(answer.request)
            except QueueFullError:
                if not self.engine.has_work:
                    raise
                return
            self._open[answer.request.id] = answer
            waiting.pop()

    def _take(self, event: TokenEvent) -> StreamChunk | None:
        answer = self._open.get(event.request_id)
        if answer is None:
            return None
        if event.finish_reason == "error":
            raise PenstockError(event.error or "The engine failed while computing this request.")
        choice = answer.output.outputs[event.index]
        known = len(choice.token_ids)
        answer.output.cached_tokens = event.cached_tokens
        text = choice.take(event)
        if choice.cut:
            self.engine.cancel(event.request_id, event.index)
        return StreamChunk(event.index, text, choice.token_ids[known:], choice.finish_reason)


class _Answer:
    """A request on its way, and its output so far."""

    def __init__(self, request: Request, prompt: str | None, tokenizer: Tokenizer) -> None:
        self.request = request
        choices = [Choice(index, tokenizer, request.params) for index in range(request.params.n)]
        self.output = RequestOutput(request.id, prompt, request.prompt, choices)


def _as_batch(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if prompts and isinstance(prompts[0], int):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


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
