"""`LLM`: a model in this process. It drives the same engine core as the server."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.config.settings import options as catalogue
from penstock.engine.beam import BeamRequest, BeamSearchParams
from penstock.engine.config import EngineConfig
from penstock.engine.opening import Core, open_core
from penstock.engine.request import EngineStats, Request, SamplingParams
from penstock.errors import InvalidRequestError
from penstock.hub import resolve
from penstock.llm.driver import Driver
from penstock.llm.embedding import Embedder
from penstock.llm.outputs import RequestOutput, StreamChunk
from penstock.llm.processors import Processors, find_processors
from penstock.llm.progress import ProgressBar, Stages
from penstock.llm.running import OneToken, Running, check
from penstock.text.chat import ChatTemplate
from penstock.text.constraints import bad_word_ids, guided_ids
from penstock.text.reasoning import Reasoning, check_parser, find_family, reasoning_of
from penstock.text.template_file import template_from
from penstock.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]
Message = Mapping[str, Any]
_OPTIONS = {option.name for option in fields(EngineConfig)} - {"model"}


class LLM:
    """A model, loaded and ready. Options are the fields of `EngineConfig`, or vLLM's names for them.

    `chat_template`, a file or the template itself, takes the place of the model's own. `reasoning_parser`
    says how the model marks what it thinks before it answers in a chat: "auto" asks the template, "none"
    leaves it in the text.
    """

    def __init__(
        self,
        model: str = "default",
        *,
        chat_template: str | Path | None = None,
        reasoning_parser: str = "auto",
        **options: Any,
    ) -> None:
        options = _our_names(options)
        check_parser(reasoning_parser)
        template = None if chat_template is None else template_from(chat_template)
        files = resolve(model, progress=Stages() if sys.stderr.isatty() else None)
        self.name = files.name
        self.tokenizer = Tokenizer.load(files, chat_template=template)
        self._family = find_family(reasoning_parser, self.tokenizer.chat_template)
        config = EngineConfig(model=str(files.path), **options)
        self.engine: Core = open_core(config)
        self.tokenizer.check_vocabulary(self.engine.info.vocab_size)
        self._template: ChatTemplate | None = None
        self._serial = itertools.count()
        self._driver = Driver(self.engine)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        logits_processors: Processors = (),
        progress: bool | None = None,
    ) -> list[RequestOutput]:
        """Complete prompts, given as text or token ids; answers in the order of the prompts.

        `logits_processors` are functions (prompt ids, output ids, logits) -> logits, or their names.
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
        processors = find_processors(logits_processors)
        started = [
            self._prepare(prompt, each, processors=processors)
            for prompt, each in zip(batch, params, strict=True)
        ]
        return self._finish(started, progress)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | None = None,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        chat_template_kwargs: dict[str, Any] | None = None,
        logits_processors: Processors = (),
        progress: bool | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation, or several at once. The last message may be continued as it stands."""
        several = bool(messages) and not isinstance(messages[0], Mapping)
        conversations: Any = messages if several else [messages]
        opens = not continue_final_message if add_generation_prompt is None else add_generation_prompt
        options = {
            "add_generation_prompt": opens,
            "continue_final_message": continue_final_message,
            "kwargs": chat_template_kwargs,
        }
        processors = find_processors(logits_processors)
        params = sampling_params or SamplingParams()
        started = [
            self._prepare_chat(conversation, params, processors, **options) for conversation in conversations
        ]
        return self._finish(started, progress)

    def stream(
        self,
        prompt: Prompt | Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        logits_processors: Processors = (),
    ) -> Iterator[StreamChunk]:
        """Text as it is generated, for one prompt or one conversation. Stop iterating to stop generating."""
        params = sampling_params or SamplingParams()
        if params.best_of is not None and params.best_of > params.n:
            raise InvalidRequestError(
                f"best_of must be n in a stream, got {params.best_of}: which choices are the best is known "
                "at the end only.",
                param="best_of",
            )
        processors = find_processors(logits_processors)
        given: Any = prompt
        if not isinstance(prompt, str) and prompt and isinstance(prompt[0], Mapping):
            running = self._prepare_chat(given, params, processors)
        else:
            running = self._prepare(given, params, processors=processors)
        return self._driver.stream(running)

    def beam_search(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: BeamSearchParams | None = None,
        *,
        progress: bool | None = None,
    ) -> list[RequestOutput]:
        """The likeliest continuations of each prompt that the beams find, the best first."""
        params = params or BeamSearchParams()
        shown = params.sampling()
        started = [self._prepare(prompt, shown) for prompt in _as_batch(prompts)]
        searches = [BeamRequest(each.request, params, self.engine.info.max_model_len) for each in started]
        with ProgressBar(progress, len(started)) as advance:
            while live := [search for search in searches if not search.done]:
                rounds = [[OneToken(request) for request in search.round()] for search in live]
                self._driver.run([step for steps in rounds for step in steps])
                for search, steps in zip(live, rounds, strict=True):
                    search.take([step.event for step in steps if step.event is not None])
                    if search.done:
                        advance(sum(len(event.token_ids) for event in search.events()))
        for running, search in zip(started, searches, strict=True):
            for event in search.events():
                running.take(event)
            check(running)
        return [running.output() for running in started]

    def embed(
        self,
        texts: Prompt | Sequence[Prompt],
        *,
        dimensions: int | None = None,
        normalize: bool = True,
        truncate_prompt_tokens: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """A row of numbers for each text or list of token ids, of length 1 unless told otherwise.

        `truncate_prompt_tokens` cuts longer texts, -1 to what the model reads; None refuses them.
        """
        return self._embedder().embed(_as_batch(texts), dimensions, normalize, truncate_prompt_tokens)

    def score(
        self, query: str, documents: str | Sequence[str], *, truncate_prompt_tokens: int | None = None
    ) -> list[float]:
        """How well each document goes with the query: by a cross-encoder's head, or by their vectors."""
        batch = [documents] if isinstance(documents, str) else list(documents)
        return self._embedder().score(query, batch, truncate_prompt_tokens)

    def stats(self) -> EngineStats:
        return self.engine.stats()

    def close(self) -> None:
        """Let go of the model's memory; streams that are still open end with an error."""
        self._driver.close()
        self.__dict__.pop("engine", None)
        if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
            # torch keeps for itself what was let go of, and graphs are let go of late.
            gc.collect()
            torch.cuda.empty_cache()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _embedder(self) -> Embedder:
        return Embedder(self.tokenizer, self.engine.info, self._serial, self._driver.run)

    def _prepare_chat(
        self, messages: Sequence[Message], params: SamplingParams, processors: Any, **options: Any
    ) -> Running:
        if "generate" not in self.engine.info.tasks:
            raise InvalidRequestError("This model gives vectors and scores, not answers.")
        if self._template is None:
            self._template = ChatTemplate(self.tokenizer.chat_template, self.tokenizer)
        ids = self._template.encode([dict(message) for message in messages], **options)
        family = None if params.guided_choice else self._family
        continued = messages[-1] if options.get("continue_final_message") else None
        reasoning = reasoning_of(family, self.tokenizer, ids, continued)
        return self._prepare(ids, params, reasoning, processors)

    def _prepare(
        self,
        prompt: Prompt,
        params: SamplingParams,
        reasoning: Reasoning | None = None,
        processors: Any = (),
    ) -> Running:
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        request = Request(
            id=f"llm-{next(self._serial)}",
            prompt=ids,
            params=params.for_engine(),
            eos_token_ids=self.tokenizer.eos_token_ids,
            bad_words=bad_word_ids(self.tokenizer, params.bad_words),
            guided=guided_ids(self.tokenizer, params.guided_choice),
        )
        text = prompt if isinstance(prompt, str) else None
        return Running(request, params, text, self.tokenizer, reasoning, processors)

    def _finish(self, started: list[Running], progress: bool | None) -> list[RequestOutput]:
        with ProgressBar(progress, len(started)) as advance:
            self._driver.run(started, advance)
        return [each.output() for each in started]


def _as_batch(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if prompts and isinstance(prompts[0], int):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def _our_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the names of `EngineConfig`'s fields; TypeError where one is unknown or given twice."""
    options = dict(options)
    if options.pop("enforce_eager", False):  # vLLM's switch
        given = options.get("without", ())
        options["without"] = (*(given if isinstance(given, list | tuple) else (given,)), "graphs")
    ours = {alias: name for name in _OPTIONS for alias in catalogue()[name].aliases}
    unknown = sorted(set(options) - _OPTIONS - set(ours))
    if unknown:
        raise TypeError(f"LLM has no option {', '.join(unknown)}; it has {', '.join(sorted(_OPTIONS))}.")
    for alias in sorted(set(options) & set(ours)):
        if ours[alias] in options:
            raise TypeError(f"{ours[alias]} and {alias} are the same option; keep one of them.")
    return {ours.get(name, name): value for name, value in options.items()}
