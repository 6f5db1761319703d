"""One model, ready to be driven: `LLM`, the server and the benchmarks all submit, step and cancel here."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from penstock.engine.config import EngineConfig, EngineInfo, Task
from penstock.engine.failures import OutOfDeviceMemory
from penstock.engine.loop import Loop
from penstock.engine.memory.manager import KVMemory
from penstock.engine.pooling import decoder_pooling
from penstock.engine.request import EngineStats, Request, TokenEvent
from penstock.engine.run.defaults import GIB
from penstock.engine.run.loading import load_model
from penstock.engine.run.runner import Runner
from penstock.engine.run.sizing import choose_device, gpu_uuid, memory_for, size_engine, stored_size
from penstock.engine.run.step import Room
from penstock.engine.schedule.scheduler import Limits, Scheduler
from penstock.engine.schedule.sequence import LogitsProcessor
from penstock.engine.transfer import current
from penstock.errors import EngineUnavailableError, InvalidRequestError


class EngineCore:
    """One model. Not thread-safe: one caller submits, cancels and steps."""

    def __init__(self, config: EngineConfig, clock: Callable[[], float] = time.monotonic) -> None:
        began = time.perf_counter()
        device = choose_device(config.device)
        config.check_device(device.type)
        pooling = decoder_pooling(config.pooling, Path(config.model))
        smaller = "Take a smaller model or precision"
        with current(device), memory_for(device, f"the weights{stored_size(config)}", smaller):
            model, quantization = load_model(config, device, generates=pooling is None)
        largest = f"a step of the largest size beside {model.weight_bytes / GIB:.1f} GiB of weights"
        with current(device), memory_for(device, largest, "Lower max_step_tokens and max_running"):
            size = size_engine(config, model)
        tasks: tuple[Task, ...] = ("generate",) if model.config.has_head else ()
        self._clock = clock
        room = Room(size.num_blocks, size.block_size, size.max_step_tokens, size.max_model_len)
        try:
            self._runner = Runner(model, room, size.max_running)
        except OutOfDeviceMemory:
            raise EngineUnavailableError(
                f"{device} has no memory for {size.num_blocks} KV blocks and a first step: another program "
                "may have taken it. Lower memory_fraction or kv_cache_memory."
            ) from None
        memory = KVMemory(size.num_blocks, size.block_size, prefix_caching=config.prefix_caching)
        limits = Limits(
            max_running=size.max_running,
            max_waiting=config.max_waiting,
            max_step_tokens=size.max_step_tokens,
            max_model_len=size.max_model_len,
            arrival_window=config.arrival_window,
            ageing_seconds=config.ageing_seconds,
        )
        self._scheduler = Scheduler(limits, memory)
        self._loop = Loop(self._scheduler, self._runner, clock)
        self.info = EngineInfo(
            architecture=model.config.architecture,
            device=str(device),
            gpu=gpu_uuid(device),
            precision=model.precision,
            quantization=quantization,
            vocab_size=model.config.vocab_size,
            max_model_len=size.max_model_len,
            max_running=size.max_running,
            max_step_tokens=size.max_step_tokens,
            block_size=size.block_size,
            num_blocks=size.num_blocks,
            weight_bytes=model.weight_bytes,
            weight_count=model.weight_count,
            kv_cache_bytes=size.num_blocks * size.block_size * model.kv_bytes_per_token,
            load_seconds=time.perf_counter() - began,
            tasks=(*tasks, "embed", "score") if pooling else tasks,
            pooling=pooling,
            embedding_size=model.config.hidden_size if pooling else 0,
        )

    @property
    def has_work(self) -> bool:
        return self._loop.has_work

    def submit(self, request: Request, processors: tuple[LogitsProcessor, ...] = ()) -> None:
        """Accept a request, or raise InvalidRequestError or QueueFullError.

        Processors change the logits of each of its tokens, after everything `params` says.
        """
        if request.id in self._scheduler:
            raise InvalidRequestError(f"A request with the id {request.id!r} is already being served.")
        needs_logits = request.pooling is None or request.params.prompt_logprobs is not None
        if needs_logits and "generate" not in self.info.tasks:
            raise InvalidRequestError(
                "This model gives vectors and scores, and does not generate: it has no output matrix."
            )
        if request.pooling not in (None, "last", "mean"):
            raise InvalidRequestError(
                f"A decoder's hidden states are pooled by last or mean, not by {request.pooling}.",
                param="pooling",
            )
        self.info.check_tokens("prompt", request.prompt)
        for name, texts in (("bad_words", request.bad_words), ("guided_choice", request.guided)):
            for ids in texts:
                self.info.check_tokens(name, ids)
        request.params.check_vocabulary(self.info.vocab_size)
        if request.params.seed is None:
            request = replace(request, params=replace(request.params, seed=secrets.randbits(63)))
        # A tokenizer may name ends of text that the model's output has no row for.
        ends = tuple(token for token in request.eos_token_ids if 0 <= token < self.info.vocab_size)
        self._scheduler.submit(replace(request, eos_token_ids=ends), self._clock(), processors)

    def cancel(self, request_id: str, index: int | None = None) -> list[TokenEvent]:
        """Stop a request or one of its choices; their last events. Unknown ids are no error."""
        ended = self._scheduler.cancel(request_id, index)
        return [TokenEvent(request_id=request_id, index=s.index, finish_reason="cancelled") for s in ended]

    def step(self) -> list[TokenEvent]:
        """Compute one step; the tokens it gave, or those of the step before where the device works ahead."""
        return self._loop.step()

    def stats(self) -> EngineStats:
        return self._loop.stats()

    def check(self) -> None:
        """Assert that no block, slot or sequence was lost; meant for idle moments and tests."""
        self._scheduler.check()
