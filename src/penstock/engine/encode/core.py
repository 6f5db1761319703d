"""An encoder's loop body: receive, take what fits a step, compute it whole, emit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from penstock.engine.config import EngineConfig, EngineInfo, Task
from penstock.engine.encode.model import EncodeItem, EncoderModel
from penstock.engine.encode.queue import EncodeLimits, EncodeQueue
from penstock.engine.encode.weights import open_weights
from penstock.engine.failures import FailedSteps
from penstock.engine.models.tensors import choose_dtype
from penstock.engine.pooling import choose_pooling, longest_input
from penstock.engine.request import EngineStats, Pooling, Request, TokenEvent
from penstock.engine.run.sizing import block_size, choose_device, set_threads
from penstock.engine.schedule.sequence import LogitsProcessor
from penstock.errors import ConfigError, ContextLengthError, InvalidRequestError

# A step on the CPU should stay well under a second, and a few hundred rows fill a matmul already.
CPU_STEP_TOKENS, GPU_STEP_TOKENS = 1024, 16384
CPU_MAX_RUNNING, GPU_MAX_RUNNING = 256, 1024  # texts in one step


class EncoderCore:
    """One encoder, driven like `EngineCore`. Not thread-safe: one caller submits, cancels and steps."""

    def __init__(self, config: EngineConfig, clock: Callable[[], float] = time.monotonic) -> None:
        began = time.perf_counter()
        device = choose_device(config.device)
        config.check_device(device.type)
        set_threads(config.threads)
        path = Path(config.model)
        if config.load_format == "random":
            raise ConfigError("load_format is random, which decoders alone can have; leave it at auto.")
        weights = open_weights(path)
        pooling = _own_pooling(config, path, scores=weights.config.scores)
        self._model = EncoderModel(weights, device, choose_dtype(config.precision, weights.dtype, device))
        context = _context(config, path, weights.config.context_length)
        limits = _limits(config, context, on_cpu=device.type == "cpu")
        self._clock = clock
        self._queue = EncodeQueue(limits)
        self._stats = EngineStats()
        self._failed_steps = FailedSteps()
        tasks: tuple[Task, ...] = ("score",) if pooling == "score" else ("embed", "score")
        self.info = EngineInfo(
            architecture=weights.config.architecture,
            device=str(device),
            precision=str(self._model.dtype).removeprefix("torch."),
            quantization=weights.quantization,
            vocab_size=weights.config.vocab_size,
            max_model_len=context,
            max_running=limits.max_running,
            max_step_tokens=limits.max_step_tokens,
            block_size=block_size(config, device),
            num_blocks=0,
            weight_bytes=self._model.weight_bytes,
            weight_count=self._model.weight_bytes // self._model.dtype.itemsize,
            load_seconds=time.perf_counter() - began,
            tasks=tasks,
            pooling=pooling,
            embedding_size=0 if pooling == "score" else weights.config.hidden_size,
        )

    @property
    def has_work(self) -> bool:
        return len(self._queue) > 0

    def submit(self, request: Request, processors: tuple[LogitsProcessor, ...] = ()) -> None:
        """Accept a request, or raise InvalidRequestError or QueueFullError."""
        if processors:
            raise InvalidRequestError("This model is an encoder: it has no logits to process.")
        if request.id in self._queue:
            raise InvalidRequestError(f"A request with the id {request.id!r} is already being served.")
        self._check(request)
        self._queue.submit(request, self._clock())

    def cancel(self, request_id: str, index: int | None = None) -> list[TokenEvent]:
        """Stop a request; its last event. Unknown ids are no error."""
        if not self._queue.cancel(request_id):
            return []
        return [TokenEvent(request_id=request_id, finish_reason="cancelled")]

    def step(self) -> list[TokenEvent]:
        """Compute one step; the vectors it gave. Sleeps out the arrival window if nothing else is to do."""
        wake_at = self._queue.wake_at(self._clock())
        if wake_at is not None:
            time.sleep(max(0.0, wake_at - self._clock()))
            return []
        requests = self._queue.take()
        if not requests:
            return []
        began = self._clock()
        items = [EncodeItem(r.prompt, r.segments, r.pooling or "mean") for r in requests]
        try:
            vectors = self._model.encode(items)
        except Exception as error:
            return self._fail(requests, error)
        self._failed_steps.clear()
        self._stats.steps += 1
        self._stats.prompt_tokens += sum(len(request.prompt) for request in requests)
        return [_event(r, v, began) for r, v in zip(requests, vectors, strict=True)]

    def stats(self) -> EngineStats:
        return replace(self._stats, waiting=len(self._queue))

    def check(self) -> None:
        """Assert that no request was lost; meant for idle moments and tests."""
        self._queue.check()

    def _check(self, request: Request) -> None:
        info, prompt = self.info, request.prompt
        if request.pooling is None:
            raise InvalidRequestError(
                "This model gives vectors and scores, and does not generate: it is an encoder."
            )
        if (request.pooling == "score") != (info.pooling == "score"):
            has = "has a classifier head: it scores pairs and gives no vectors"
            lacks = "has no classifier head: its scores are similarities of vectors"
            raise InvalidRequestError(f"This model {has if info.pooling == 'score' else lacks}.")
        info.check_tokens("prompt", prompt)
        if len(prompt) > info.max_model_len:
            raise ContextLengthError(
                f"The text has {len(prompt)} tokens, but the model reads at most {info.max_model_len}."
            )
        kinds = self._model.config.segments
        if request.segments and (
            len(request.segments) != len(prompt)
            or not 0 <= min(request.segments) <= max(request.segments) < kinds
        ):
            raise InvalidRequestError(
                f"A text of {len(prompt)} tokens needs as many segments, each from 0 to {kinds - 1}."
            )

    def _fail(self, requests: list[Request], error: Exception) -> list[TokenEvent]:
        """The device failed: end the step's requests, keep the others. Re-raise when it keeps failing."""
        self._stats.failed_steps += 1
        message = self._failed_steps.add(error)
        return [TokenEvent(request_id=r.id, finish_reason="error", error=message) for r in requests]


def _event(request: Request, vector: torch.Tensor, began: float) -> TokenEvent:
    if not bool(torch.isfinite(vector).all()):
        message = "The model's output for this text is not a number; its weights or precision are at fault."
        return TokenEvent(request_id=request.id, finish_reason="error", error=message)
    embedding = vector.numpy().astype("<f4").tobytes()
    return TokenEvent(request_id=request.id, finish_reason="stop", embedding=embedding, scheduled=began)


def _own_pooling(config: EngineConfig, path: Path, *, scores: bool) -> Pooling:
    if scores:
        if config.pooling != "auto":
            raise ConfigError(
                f"pooling is {config.pooling}, but the model has a classifier head, which needs none; "
                "leave it at auto."
            )
        return "score"
    chosen = choose_pooling(config.pooling, path)
    if config.pooling == "none":
        raise ConfigError("pooling is none, but an encoder gives nothing else than pooled vectors.")
    # Files of models that were trained for vectors say how; of the others the mean serves best.
    return chosen or "mean"


def _context(config: EngineConfig, path: Path, positions: int) -> int:
    if config.max_model_len is None:
        return min(longest_input(path) or positions, positions)
    if config.max_model_len > positions:
        raise ConfigError(
            f"max_model_len is {config.max_model_len}, but the model's context is {positions} tokens."
        )
    return config.max_model_len


def _limits(config: EngineConfig, context: int, *, on_cpu: bool) -> EncodeLimits:
    tokens = config.max_step_tokens or (CPU_STEP_TOKENS if on_cpu else GPU_STEP_TOKENS)
    return EncodeLimits(
        max_running=config.max_running or min(CPU_MAX_RUNNING if on_cpu else GPU_MAX_RUNNING, tokens),
        max_waiting=config.max_waiting,
        # A text is computed whole, so a step must have room for the longest.
        max_step_tokens=max(tokens, context),
        arrival_window=config.arrival_window,
        ageing_seconds=config.ageing_seconds,
    )
