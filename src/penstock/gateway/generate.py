"""The two generating endpoints. Both prepare prompts and a shape; the rest is one path."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable

from penstock.engine.request import Request, SamplingParams, TokenEvent
from penstock.errors import InvalidRequestError, PenstockError, QueueFullError
from penstock.gateway.call import CLIENT_LEFT, Call, ClientGoneError
from penstock.gateway.choice import SentChoice
from penstock.gateway.generation import Generation
from penstock.gateway.model import ServedModel
from penstock.gateway.state import Gateway
from penstock.observe.metrics import Ending
from penstock.protocol import sse
from penstock.protocol.chat import parse_chat
from penstock.protocol.completion import check_prompt_ids, check_total_choices, parse_completion
from penstock.protocol.generation import GenerationRequest, check_context
from penstock.protocol.shapes import ChatShape, CompletionShape, Delta, Header, Shape

OPENING_SECONDS = 2.0


async def chat_completions(gateway: Gateway, call: Call) -> None:
    arrived = time.monotonic()
    body = await call.body()
    request, params, prompts = await gateway.model.apart(len(body), lambda: _read_chat(gateway.model, body))
    shape = ChatShape(_header("chatcmpl", gateway, request))
    await _generate(gateway, call, request, shape, prompts, params, arrived)


async def completions(gateway: Gateway, call: Call) -> None:
    arrived = time.monotonic()
    body = await call.body()
    request, params, prompts = await gateway.model.apart(
        len(body), lambda: _read_completion(gateway.model, body)
    )
    shape = CompletionShape(_header("cmpl", gateway, request))
    await _generate(gateway, call, request, shape, prompts, params, arrived)


def _read_chat(model: ServedModel, body: bytes) -> tuple[GenerationRequest, SamplingParams, list[list[int]]]:
    request = parse_chat(body)
    model.check_name(request.model)
    params = request.sampling()
    params.check_vocabulary(model.vocab_size)
    model.check_messages(len(request.messages))
    messages = request.template_messages()
    model.check_characters(messages, "messages")
    ids = model.encode_chat(messages, request.template_options())
    limit, field = request.output_limit
    check_context(len(ids), limit, model.context, prompt="messages", field=field)
    return request, params, [ids]


def _read_completion(
    model: ServedModel, body: bytes
) -> tuple[GenerationRequest, SamplingParams, list[list[int]]]:
    request = parse_completion(body)
    model.check_name(request.model)
    params = request.sampling()
    params.check_vocabulary(model.vocab_size)
    prompts = request.prompts()
    check_total_choices(len(prompts), params.n)
    encoded: list[list[int]] = []
    for number, prompt in enumerate(prompts):
        where = "prompt" if len(prompts) == 1 else f"prompt[{number}]"
        if isinstance(prompt, str):
            model.check_characters(prompt, where)
            ids = model.tokenizer.encode(prompt, add_bos=request.add_special_tokens)
        else:
            ids = prompt
        # Only a limit that was asked for must fit; the default ends where the context does.
        check_context(len(ids), request.max_tokens, model.context, prompt=where, field="max_tokens")
        check_prompt_ids(ids, model.vocab_size, where)
        encoded.append(ids)
    return request, params, encoded


def _header(prefix: str, gateway: Gateway, request: GenerationRequest) -> Header:
    options = request.stream_options
    return Header(
        id=f"{prefix}-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=gateway.model.check_name(request.model),
        system_fingerprint=gateway.model.fingerprint,
        include_usage=bool(options and options.include_usage),
        running_usage=bool(options and options.include_usage and options.continuous_usage_stats),
    )


async def _generate(
    gateway: Gateway,
    call: Call,
    request: GenerationRequest,
    shape: Shape,
    prompts: list[list[int]],
    params: SamplingParams,
    arrived: float,
) -> None:
    # A client chooses its cache_salt: the key in front keeps it among what that key has computed.
    salt = f"{call.tenant}/{request.cache_salt or ''}"
    requests = [
        Request(
            id=f"{shape.header.id}-{number}",
            prompt=ids,
            params=params,
            eos_token_ids=gateway.model.tokenizer.eos_token_ids,
            priority=request.priority or 0,
            salt=salt,
        )
        for number, ids in enumerate(prompts)
    ]
    generation = Generation(gateway.backend, requests)
    answer = _Answer(gateway, generation, shape, params, prompts, arrived)
    async with gateway.running(generation):
        generation.start()
        watcher = asyncio.create_task(_watch(call, generation))
        try:
            if request.stream:
                await answer.stream(call)
            else:
                await answer.whole(call)
        except ClientGoneError:
            call.status = CLIENT_LEFT
            answer.count_unfinished("abort")
        except (InvalidRequestError, QueueFullError):
            raise  # refused by the engine: nothing had begun
        except Exception:
            answer.count_unfinished("error")
            raise
        finally:
            watcher.cancel()


async def _watch(call: Call, generation: Generation) -> None:
    await call.left()
    generation.abort(ClientGoneError())


class _Answer:
    """Reads a generation to its end and gives it away, as it comes or whole."""

    def __init__(
        self,
        gateway: Gateway,
        generation: Generation,
        shape: Shape,
        params: SamplingParams,
        prompts: list[list[int]],
        arrived: float,
    ) -> None:
        self._generation = generation
        self._shape = shape
        self._n = params.n
        self._usage = shape.header.usage
        self._usage.prompt = sum(map(len, prompts))
        # Of several prompts the choices are numbered on: those of the first, then of the second.
        self._choices = [
            SentChoice(index, gateway.model.tokenizer, params, gateway.metrics, arrived)
            for index in range(params.n * len(prompts))
        ]
        self._open = len(self._choices)

    async def whole(self, call: Call) -> None:
        while self._open:
            self._deltas(await self._generation.next())
        await call.answer_json(self._shape.whole([choice.answer() for choice in self._choices]))

    async def stream(self, call: Call) -> None:
        # The engine may still refuse, which takes another status than 200; its word comes with the
        # first token at the latest. A client that waits longer in the queue sees the stream open.
        await self._generation.wait(OPENING_SECONDS)
        self._generation.check()
        await call.start_stream()
        data = self._shape.opening(len(self._choices))
        try:
            while self._open:
                if data:
                    await call.write(data)
                deltas = self._deltas(await self._generation.next())
                data = b"".join([self._shape.delta(delta) for delta in deltas])
            await call.end_stream(data + self._shape.closing())
        except ClientGoneError:
            raise
        except Exception as error:
            # The status line said 200 long ago: the error must be an event of the stream.
            self.count_unfinished("error")
            await call.end_stream(sse.error_event(error) + sse.DONE)
            if not isinstance(error, PenstockError):
                raise

    def count_unfinished(self, ending: Ending) -> None:
        for choice in self._choices:
            choice.count(ending)

    def _deltas(self, events: Iterable[tuple[int, TokenEvent]]) -> list[Delta]:
        now = time.monotonic()
        deltas = []
        for position, event in events:
            choice = self._choices[position * self._n + event.index]
            if choice.finish_reason is not None:
                continue  # the engine's word on a choice that a stop string had ended before
            before = choice.tokens
            if not before:
                self._usage.cached += event.cached_tokens
            delta = choice.feed(event, now)
            self._usage.completion += choice.tokens - before
            if delta.finish_reason is not None:
                self._open -= 1
                if choice.cut:
                    self._generation.cancel_choice(position, event.index)
            deltas.append(delta)
        return deltas
