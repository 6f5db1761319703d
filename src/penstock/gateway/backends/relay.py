"""Somebody's server that speaks OpenAI's API: requests go there, answers come back, bytes stay bytes."""

from __future__ import annotations

import logging
import os
import time
from typing import Final

from penstock.config.sections import BackendConfig, HealthConfig, ModelConfig
from penstock.gateway.backends.abilities import Abilities
from penstock.gateway.backends.load_watch import NOBODY_THERE, Watch
from penstock.gateway.backends.relay_answer import read_answer
from penstock.gateway.backends.relay_errors import garbage, refusal, unusable
from penstock.gateway.backends.relay_named import NamedStream
from penstock.gateway.backends.relay_options import DEFAULT_PREFIX, paths_of, preset_of, read_options
from penstock.gateway.backends.relay_request import request_body, request_headers, static_headers
from penstock.gateway.backends.relay_stream import ChatStream
from penstock.gateway.backends.server import MAX_ANSWER_BYTES, MAX_ERROR_BYTES, origin_of
from penstock.gateway.balance import Load
from penstock.gateway.exchange import Exchange
from penstock.gateway.health import Health, server_limits, unwatched_limits
from penstock.gateway.upstream import Response, UpstreamError

logger = logging.getLogger("penstock.gateway")


_NAMED: Final = ("createResponse", "createMessage")
_EVENTS: Final = b"text/event-stream"


class RelayBackend:
    restarts = False

    def __init__(self, model: ModelConfig, config: BackendConfig, health: HealthConfig) -> None:
        """Raises ConfigError for a URL, header or option that cannot be."""
        options = read_options(config)
        preset = preset_of(config, options)
        self.name = config.name
        self.vision = config.vision
        self.upstream_model = config.model or model.name
        self.capacity = config.max_concurrent or preset.capacity
        self.prioritizes = bool(config.priority and preset.priority)
        limits = server_limits(health) if preset.health is not None else unwatched_limits(health)
        self.health = Health(limits, time.monotonic())
        self._preset = preset
        self._abilities = Abilities(preset.operations)
        self._paths = paths_of(options)
        self._origin = origin_of(config, DEFAULT_PREFIX, preset.url)
        key = config.api_key or (os.environ.get(preset.key_variable) if preset.key_variable else None)
        self._headers = static_headers(key, config.headers)
        self._watch = Watch(
            self._origin,
            self.health,
            name=config.name,
            path=preset.health,
            sources=preset.load,
            headers=self._headers,
            timeout=limits.probe_timeout,
            on_return=self._abilities.forget,
        )

    @property
    def operations(self) -> frozenset[str]:
        return self._abilities.offered(time.monotonic())

    def load(self) -> Load | None:
        return self._watch.load(time.monotonic())

    async def start(self) -> None:
        self._watch.start()

    async def close(self) -> None:
        await self._watch.close()
        self._origin.close()

    async def answer(self, exchange: Exchange) -> None:
        body = request_body(self._preset, self.upstream_model, self.prioritizes, exchange)
        headers = request_headers(self._headers, exchange)
        try:
            path = self._paths[exchange.operation.asks]
            with await self._origin.request(b"POST", path, headers, body) as response:
                if response.status != 200:
                    await self._refused(exchange, response)
                if exchange.inquiry.stream:
                    await self._stream(exchange, response)
                else:
                    await self._whole(exchange, response)
            self._abilities.answered(exchange.operation.asks)
        except UpstreamError as error:
            self._log(f"{error} {error.detail}")
            if error.kind in ("refused", "unresolved"):
                self.health.died(NOBODY_THERE, time.monotonic())
            raise unusable(error) from error

    async def _whole(self, exchange: Exchange, response: Response) -> None:
        body = await response.read(MAX_ANSWER_BYTES)
        self._watch.seen = True
        whole = read_answer(exchange.operation.asks, body, exchange.model, exchange.delivered.prompt)
        await exchange.answer(whole.body, whole.usage)

    async def _stream(self, exchange: Exchange, response: Response) -> None:
        if not response.header(b"content-type").lower().startswith(_EVENTS):
            raise garbage("what came is not a stream of events")
        stream = self._reading(exchange)
        delivered, watch = exchange.delivered, self._watch
        prompt_known = False
        response.due = True  # until there is an event: comments and halves of one are none
        while True:
            data = await response.chunk()
            watch.seen = True
            out, tokens = stream.feed(data) if data else stream.close()
            if not prompt_known and (usage := stream.usage) is not None:
                prompt_known = True
                delivered.prompt, delivered.cached = usage.prompt, usage.cached
            if stream.done:
                break
            if out:
                if not exchange.begun:
                    response.due = False
                    await exchange.start_stream()
                await exchange.write(out, tokens)
            if stream.error is not None:
                raise stream.error
        if (usage := stream.usage) is not None:
            delivered.prompt, delivered.cached, delivered.reasoning = (
                usage.prompt,
                usage.cached,
                usage.reasoning,
            )
        response.release()
        exchange.unmarked = not data
        if not exchange.begun:
            await exchange.start_stream()
        await exchange.end_stream(out, tokens)

    def _reading(self, exchange: Exchange) -> ChatStream | NamedStream:
        inquiry = exchange.inquiry
        names = self._names(exchange)
        if exchange.operation.asks in _NAMED:
            return NamedStream(
                name=exchange.model, names=names, prompt=exchange.delivered.prompt, charged=exchange.charge
            )
        return ChatStream(
            name=exchange.model,
            names=names,
            running=self._preset.running_usage,
            wants_usage=inquiry.include_usage,
            wants_running=inquiry.running_usage,
            choices=inquiry.n * inquiry.prompts,
            prompt=exchange.delivered.prompt,
            charged=exchange.charge,
        )

    async def _refused(self, exchange: Exchange, response: Response) -> None:
        try:
            body = await response.read(MAX_ERROR_BYTES)
        except UpstreamError:
            body = b""  # the status alone says enough
        self._watch.seen = True
        self._log(f"status {response.status}")
        # What it says is the client's alone: it may quote the prompt.
        error = refusal(response.status, response.header(b"retry-after"), body, self._names(exchange))
        raise self._abilities.refused(exchange.operation.asks, response.status, error, time.monotonic())

    def _names(self, exchange: Exchange) -> dict[str, str]:
        same = self.upstream_model == exchange.model
        return {} if same else {self.upstream_model: exchange.model}

    def _log(self, what: str) -> None:
        logger.info("At %s: %s", self.name, what)
