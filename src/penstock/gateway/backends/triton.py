"""NVIDIA Triton as a backend: its generate extension, ensembles, and KServe's `infer`."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
import uuid
from contextlib import aclosing, suppress
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np

from penstock.config.sections import BackendConfig, HealthConfig, ModelConfig
from penstock.engine.request import SamplingParams
from penstock.errors import InvalidRequestError, PenstockError
from penstock.gateway.apart import INLINE_BYTES
from penstock.gateway.backends import BackendError
from penstock.gateway.backends.load_watch import NOBODY_THERE, Watch
from penstock.gateway.backends.relay_errors import decent, unusable
from penstock.gateway.backends.server import origin_of
from penstock.gateway.backends.triton_client import TritonClient
from penstock.gateway.backends.triton_options import metrics_page, read_options
from penstock.gateway.backends.triton_reading import Reading, shared_readings
from penstock.gateway.backends.triton_text import Output
from penstock.gateway.balance import Load
from penstock.gateway.exchange import Exchange
from penstock.gateway.health import Health, server_limits, unwatched_limits
from penstock.gateway.upstream import Origin, UpstreamError, header_lines
from penstock.hub.resolve import resolve
from penstock.observe.trace import onward
from penstock.protocol.chat import ChatCompletionRequest
from penstock.protocol.chat_shape import ChatShape
from penstock.protocol.completion import CompletionRequest
from penstock.protocol.completion_shape import CompletionShape
from penstock.protocol.embeddings import EmbeddingRequest, encode_embeddings
from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.shapes import Answered, Delta, Header, Shape, UsageCount
from penstock.protocol.triton_answer import TritonRefusalError, read_load, read_vectors
from penstock.protocol.triton_request import embed_request, model_path
from penstock.text.tokenizer import Tokenizer

logger = logging.getLogger("penstock.gateway")

DEFAULT_CAPACITY: Final = 64  # requests at once
LEARN_SECONDS: Final = 1.0  # between questions to a server that has not shown its model yet
_TEXT: Final = frozenset({"createChatCompletion", "createCompletion"})
_VECTORS: Final = frozenset({"createEmbedding"})
# What requests for text may ask beside sampling, and Triton has no word for.
_REFUSED: Final = ("echo", "use_beam_search", "truncate_prompt_tokens", "return_token_ids", "best_of")


class TritonBackend:
    prioritizes = False
    restarts = False
    vision = False  # its models are given text

    def __init__(
        self,
        model: ModelConfig,
        config: BackendConfig,
        health: HealthConfig,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """`tokenizer`: the model's own, for chats and to count with; read from its configuration otherwise.

        Raises ConfigError for wrong options, ModelError for a tokenizer that cannot be read.
        """
        self.name = config.name
        self.upstream_model = config.model or model.name
        self.capacity = config.max_concurrent or DEFAULT_CAPACITY
        limits = server_limits(health)
        self.health = Health(limits, time.monotonic())
        self._options = read_options(config)
        if tokenizer is None and model.tokenizer is not None:
            tokenizer = _tokenizer(model.tokenizer)
        self._prompts, self._readings = shared_readings(model.name, tokenizer)
        self._origin = origin_of(config, "/v2")
        headers = _headers(config)
        self._client = TritonClient(self._origin, headers, self.upstream_model, self._options)
        self._early: asyncio.Task[None] | None = None
        self._watch = Watch(
            self._origin,
            self.health,
            name=config.name,
            path=model_path(self.upstream_model, self._options.version, "ready"),
            sources=(),
            headers=headers,
            timeout=limits.probe_timeout,
        )
        # The metrics are at another port: a watch of their own reads them, and judges nothing.
        server, page = metrics_page(config, self._options)
        self._metrics = Origin(server)
        self._load_watch = Watch(
            self._metrics,
            Health(unwatched_limits(health), time.monotonic()),
            name=config.name,
            path=None,
            sources=((page, self._read_load),),
            headers=b"",
            timeout=limits.probe_timeout,
        )

    @property
    def operations(self) -> frozenset[str]:
        model = self._client.learned
        if model is None:
            return _TEXT | _VECTORS
        return _TEXT if self._options.text_output in model.outputs else _VECTORS

    def load(self) -> Load | None:
        return self._load_watch.load(time.monotonic())

    async def start(self) -> None:
        self._watch.start()
        self._early = asyncio.create_task(self._learn_early())

    async def close(self) -> None:
        if self._early is not None:
            self._early.cancel()
        await self._watch.close()
        await self._load_watch.close()
        self._origin.close()
        self._metrics.close()

    async def answer(self, exchange: Exchange) -> None:
        operation, body = exchange.operation.asks, exchange.inquiry.encode()
        reading = await self._readings.read(operation, body)
        try:
            await self._answer(exchange, reading)
        except BackendError:
            raise  # another replica may need what was read
        except BaseException:
            self._readings.forget(operation, body)
            raise
        self._readings.forget(operation, body)

    async def _answer(self, exchange: Exchange, reading: Reading) -> None:
        try:
            if isinstance(reading.request, EmbeddingRequest):
                await self._embed(exchange, reading.request, reading.prompts)
            else:
                await self._generate(exchange, reading.request, reading.prompts)
        except UpstreamError as error:
            self._client.forget()
            logger.info("At %s: %s %s", self.name, error, error.detail)
            if error.kind in ("refused", "unresolved"):
                self.health.died(NOBODY_THERE, time.monotonic())
            raise unusable(error) from error
        except TritonRefusalError as error:
            message = "The server behind this model failed"
            raise BackendError(f"{message}: {decent(str(error), {})}", logged=f"{message}.") from error
        except ForeignAnswerError as error:
            raise BackendError(f"The server behind this model gave no usable answer. {error}") from error

    # ------------------------------------------------------------------ text

    async def _generate(
        self,
        exchange: Exchange,
        request: ChatCompletionRequest | CompletionRequest,
        prompts: list[tuple[str, int]],
    ) -> None:
        _check(request)
        params = request.sampling()
        if params.max_tokens is None:
            params = dataclasses.replace(params, max_tokens=self._options.max_tokens)
        shape = _shape(exchange, chat=isinstance(request, ChatCompletionRequest))
        if exchange.inquiry.stream:
            await self._stream(exchange, shape, prompts, params)
        else:
            await self._whole(exchange, shape, prompts, params)

    async def _whole(
        self, exchange: Exchange, shape: Shape, prompts: list[tuple[str, int]], params: SamplingParams
    ) -> None:
        outputs = [Output(params, self._prompts, *prompt) for prompt in prompts]

        async def one(output: Output) -> None:
            piece = await self._client.whole(output.prompt, params, onward(exchange.record))
            if len(piece.text) > INLINE_BYTES:
                await asyncio.to_thread(output.feed, piece)
            else:
                output.feed(piece)
            output.close()
            self._watch.seen = True

        tasks = [asyncio.create_task(one(output)) for output in outputs]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        usage = shape.header.usage
        for output in outputs:
            output.add_to(usage)
        answers = [
            Answered(index, output.text, None, output.finish_reason, output.stop)
            for index, output in enumerate(outputs)
        ]
        await exchange.answer(msgspec.json.encode(shape.whole(answers)), usage)

    async def _stream(
        self, exchange: Exchange, shape: Shape, prompts: list[tuple[str, int]], params: SamplingParams
    ) -> None:
        """Prompt after prompt: which one an event belongs to is told by its choice's number."""
        usage, delivered = shape.header.usage, exchange.delivered
        cumulative = (await self._client.learn()).cumulative
        for index, (text, tokens) in enumerate(prompts):
            output = Output(params, self._prompts, text, tokens, cumulative=cumulative)
            context = onward(exchange.record)
            async with aclosing(self._client.pieces(text, params, context)) as pieces:
                async for piece in pieces:
                    self._watch.seen = True
                    shown, gained = output.feed(piece)
                    if not exchange.begun:
                        await exchange.start_stream()
                        await exchange.write(shape.opening(len(prompts)))
                    delivered.prompt = usage.prompt + output.prompt_tokens
                    if shown:
                        await exchange.write(shape.delta(Delta(index, shown)), gained)
                    if output.stop is not None:
                        break  # leaving hangs up: the server need not go on
            rest = output.close()
            output.add_to(usage)
            delivered.prompt = usage.prompt
            last = Delta(index, rest, finish_reason=output.finish_reason, stop_reason=output.stop)
            await exchange.write(shape.delta(last), usage.completion - delivered.completion)
        exchange.charge(usage)
        await exchange.end_stream(shape.closing())

    # ------------------------------------------------------------------ vectors

    async def _embed(
        self, exchange: Exchange, request: EmbeddingRequest, prompts: list[tuple[str, int]]
    ) -> None:
        texts = [text for text, _ in prompts]
        model = await self._client.learn()
        output = self._options.embedding_output or model.embedding()
        name = self._options.text_input
        if output is None or name not in model.inputs:
            lacks = f"input {name!r}" if output is not None else "single output of numbers"
            raise BackendError(
                f"The model at the server has no {lacks}; whoever runs the gateway must set the backend's "
                "options text_input and embedding_output."
            )
        asked = embed_request(model, name, output, texts)
        data = await self._client.infer(asked, onward(exchange.record))
        self._watch.seen = True
        vectors = [np.asarray(row, dtype=np.float32) for row in read_vectors(data, output, len(texts))]
        tokens = sum(count for _, count in prompts)
        body = encode_embeddings(request, vectors, exchange.model, tokens)
        await exchange.answer(body, UsageCount(prompt=tokens))

    # ------------------------------------------------------------------ watching

    async def _learn_early(self) -> None:
        """So that the first request need not wait for it. Whose load to read is known only then."""
        while True:
            with suppress(PenstockError):
                await self._client.learn()
                break
            await asyncio.sleep(LEARN_SECONDS)
        self._load_watch.start()

    def _read_load(self, page: bytes) -> Load | None:
        model = self._client.learned
        found = read_load(page, (self.upstream_model, *(model.steps if model is not None else ())))
        return None if found is None else Load(found.running, found.waiting, found.kv_usage)


@lru_cache(maxsize=8)  # replicas of a model share it, and so does the same model after a change
def _tokenizer(name: str) -> Tokenizer:
    return Tokenizer.load(resolve(name))


def _headers(config: BackendConfig) -> bytes:
    fields = [("content-type", "application/json"), *(config.headers or {}).items()]
    if config.api_key is not None:
        fields.append(("authorization", f"Bearer {config.api_key}"))
    return header_lines(fields)


def _check(request: ChatCompletionRequest | CompletionRequest) -> None:
    for name in _REFUSED:
        if getattr(request, name, None):
            raise InvalidRequestError(
                f"{name} is not supported by this model's server.", param=name, code="unsupported_parameter"
            )


def _shape(exchange: Exchange, *, chat: bool) -> Shape:
    inquiry = exchange.inquiry
    header = Header(
        id=f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=exchange.model,
        system_fingerprint="triton",
        include_usage=inquiry.include_usage,
        running_usage=inquiry.running_usage,
    )
    return ChatShape(header) if chat else CompletionShape(header)
