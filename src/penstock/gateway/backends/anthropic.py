"""Anthropic as a backend: chat completions translated both ways, its own messages passed on."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import Any, Final

import msgspec

from penstock.config.sections import BackendConfig, HealthConfig, ModelConfig
from penstock.errors import ConfigError, InvalidRequestError
from penstock.gateway.backends import BackendError
from penstock.gateway.backends.relay_errors import unusable
from penstock.gateway.backends.server import MAX_ANSWER_BYTES, MAX_ERROR_BYTES, origin_of
from penstock.gateway.balance import Load
from penstock.gateway.exchange import Exchange
from penstock.gateway.health import Health, unwatched_limits
from penstock.gateway.upstream import Response, UpstreamError, header_lines
from penstock.observe.trace import onward
from penstock.protocol.anthropic_answer import ChatHeader, to_completion
from penstock.protocol.anthropic_errors import Trouble, trouble
from penstock.protocol.anthropic_relay import MessageRelay, relayed_message
from penstock.protocol.anthropic_request import AnthropicOptions, to_messages
from penstock.protocol.anthropic_stream import ChatChunks, StreamTroubleError
from penstock.protocol.errors import HTTPError
from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.sse_reader import EventError, EventReader

PATH: Final = b"/v1/messages"
DEFAULT_CAPACITY: Final = 256  # requests; the provider's own limits are in tokens, and it says 429


class AnthropicBackend:
    """One account with Anthropic. It is judged by its answers: a probe would cost money."""

    prioritizes = False
    restarts = False
    operations = frozenset({"createChatCompletion", "createMessage"})

    def __init__(self, model: ModelConfig, config: BackendConfig, health: HealthConfig) -> None:
        """Raises ConfigError for options that it does not know."""
        self.name = config.name
        self.vision = config.vision
        self.upstream_model = config.model or model.name
        self.capacity = config.max_concurrent or DEFAULT_CAPACITY
        self.health = Health(unwatched_limits(health), time.monotonic())
        self._options = anthropic_options(config)
        self._origin = origin_of(config, "/v1")
        self._headers = header_lines(
            [
                ("content-type", "application/json"),
                ("x-api-key", config.api_key or ""),
                *(config.headers or {}).items(),
            ]
        )

    def load(self) -> Load | None:
        """Anthropic does not say."""
        return None

    async def start(self) -> None:
        """There is nothing to watch."""

    async def close(self) -> None:
        self._origin.close()

    async def answer(self, exchange: Exchange) -> None:
        try:
            if exchange.operation.asks == "createMessage":
                await self._relay(exchange)
            else:
                await self._translate(exchange)
        except UpstreamError as error:
            raise unusable(error) from error
        except StreamTroubleError as error:
            raise _raised(error.trouble) from error
        except ForeignAnswerError as error:
            raise BackendError(str(error), status=502) from error

    async def _translate(self, exchange: Exchange) -> None:
        inquiry = exchange.inquiry
        body = msgspec.json.encode(to_messages(inquiry.encode(), self.upstream_model, self._options))
        header = ChatHeader(exchange.model, int(time.time()), inquiry.include_usage)
        with await self._ask(exchange, body, self._options.version) as response:
            if not inquiry.stream:
                completion, usage = to_completion(await response.read(MAX_ANSWER_BYTES), header)
                self.health.token(time.monotonic())
                await exchange.answer(msgspec.json.encode(completion), usage)
                return
            chunks = ChatChunks(header)
            await self._stream(exchange, response, chunks)
            exchange.charge(chunks.usage)
            rest = chunks.usage.completion - exchange.delivered.completion
            await exchange.end_stream(chunks.closing(), rest)

    async def _relay(self, exchange: Exchange) -> None:
        inquiry = exchange.inquiry
        # A service tier is the gateway's class of service here, and the provider bills for its own.
        changes = {"model": self.upstream_model, "service_tier": None}
        version = exchange.call.headers.get(b"anthropic-version", b"").decode("latin-1")
        with await self._ask(exchange, inquiry.encode(changes), version or self._options.version) as response:
            if not inquiry.stream:
                body, usage = relayed_message(await response.read(MAX_ANSWER_BYTES), exchange.model)
                self.health.token(time.monotonic())
                await exchange.answer(body, usage)
                return
            await self._stream(exchange, response, MessageRelay(exchange.model, exchange.charge))
            await exchange.end_stream()

    async def _ask(self, exchange: Exchange, body: bytes, version: str) -> Response:
        """Send it; what is not 200 is raised."""
        sent = [("anthropic-version", version)]
        if beta := exchange.call.headers.get(b"anthropic-beta"):
            sent.append(("anthropic-beta", beta.decode("latin-1")))
        try:
            lines = header_lines(sent)
        except ConfigError:
            raise InvalidRequestError(
                "anthropic-version or anthropic-beta has characters that no header may carry.",
                param="anthropic-beta",
            ) from None
        lines += onward(exchange.record)
        response = await self._origin.request(b"POST", PATH, self._headers + lines, body)
        if response.status == 200:
            return response
        with response:
            given = await response.read(MAX_ERROR_BYTES)
        raise _raised(trouble(response.status, given, response.header(b"retry-after").decode("latin-1")))

    async def _stream(
        self, exchange: Exchange, response: Response, stream: ChatChunks | MessageRelay
    ) -> None:
        """Pass on all events. Nothing is written before the first good one, so that another may still try."""
        reader = EventReader()
        delivered, usage = exchange.delivered, stream.usage
        response.due = True  # until there is an event of the answer
        async for data in response:
            out, failure = _fed(stream, reader, data)
            if stream.started:
                response.due = False
                self.health.token(time.monotonic())
                if not exchange.begun:
                    await exchange.start_stream()
                delivered.prompt, delivered.cached = usage.prompt, usage.cached
                delivered.reasoning = usage.reasoning
                if out:
                    await exchange.write(out, usage.completion - delivered.completion)
            if failure is not None:
                raise failure
            if stream.complete:
                response.release()
                return
        raise ForeignAnswerError("The server's stream ended before its answer did.")


def _fed(
    stream: ChatChunks | MessageRelay, reader: EventReader, data: bytes
) -> tuple[bytes, ForeignAnswerError | None]:
    """What is to be written, and why it is the last of it: what came before an error is still delivered."""
    out = b""
    try:
        for event in reader.feed(data):
            out += stream.feed(event)
    except ForeignAnswerError as error:
        return out, error
    except EventError as error:
        return out, ForeignAnswerError(str(error))
    return out, None


def anthropic_options(config: BackendConfig) -> AnthropicOptions:
    """The backend's `options`, checked."""
    known = {field.name: field for field in fields(AnthropicOptions)}
    choices = {"sampling": ("pass", "drop"), "thinking": ("adaptive", "budget")}
    given: dict[str, Any] = dict(config.options or {})
    for name, value in given.items():
        if name not in known:
            raise ConfigError(
                f"The backend {config.name!r} has the option {name!r}, which anthropic does not know; it "
                f"knows {', '.join(known)}."
            )
        wanted = type(known[name].default)
        if not isinstance(value, wanted) or (name in choices and value not in choices[name]):
            what = " or ".join(choices.get(name, ("a whole number" if wanted is int else "text",)))
            raise ConfigError(
                f"The option {name!r} of the backend {config.name!r} must be {what}, got {value!r}."
            )
    if given.get("max_tokens", 1) < 1:
        raise ConfigError(f"The option 'max_tokens' of the backend {config.name!r} must be at least 1.")
    return AnthropicOptions(**given)


def _raised(found: Trouble) -> HTTPError:
    if found.blame == "client":
        return HTTPError(
            found.status, found.message, code="invalid_request" if found.status == 400 else "too_large"
        )
    return BackendError(found.message, status=found.status, retry_after=found.retry_after)
