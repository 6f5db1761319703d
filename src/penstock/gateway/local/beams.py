"""Beam search through a backend: rounds of one-token requests that look like one request's events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from penstock.engine.beam import BeamRequest, BeamSearchParams
from penstock.engine.request import Request, TokenEvent
from penstock.errors import QueueFullError
from penstock.gateway.local.tokens import RETRY_SECONDS, EventStream, TokenSource


class BeamBackend:
    """Takes requests as a backend does, and answers each by beam search."""

    def __init__(self, backend: TokenSource, params: BeamSearchParams) -> None:
        self._backend = backend
        self._params = params

    def submit(self, request: Request) -> BeamStream:
        beams = BeamRequest(request, self._params, self._backend.info.max_model_len)
        return BeamStream(self._backend, beams)

    def cancel(self, request_id: str, index: int | None = None) -> None:
        """Whole answers come at the end: there is nothing to stop in one of them."""


class BeamStream:
    """The search's answers, once it is over. Closing it stops the beams that are being computed."""

    def __init__(self, backend: TokenSource, beams: BeamRequest) -> None:
        self._backend = backend
        self._beams = beams
        self._begun = False  # only then may it not be refused any more
        self._steps = [_Step(backend, request) for request in beams.round()]
        for step in self._steps:  # at once: if the engine is full, the client learns it now
            step.send()

    async def __aiter__(self) -> AsyncIterator[TokenEvent]:
        while True:
            events = [await self._read(step) for step in self._steps]
            failed = next((event for event in events if not event.logprobs), None)
            if failed is not None:
                for event in self._beams.failed(failed.error, invalid=failed.invalid):
                    yield event
                return
            self._begun = True
            self._beams.take(events)
            if self._beams.done:
                break
            self._steps = [_Step(self._backend, request) for request in self._beams.round()]
            await self._send_all()
        for event in self._beams.events():
            yield event

    def close(self) -> None:
        for step in self._steps:
            step.close()

    async def _send_all(self) -> None:
        """All beams of a round at once, or as many as the engine has places for."""
        waited_for = 0
        for number, step in enumerate(self._steps):
            while True:
                try:
                    step.send()
                    break
                except QueueFullError:
                    if waited_for == number:  # others have all the places, until they end
                        await asyncio.sleep(RETRY_SECONDS)
                    else:
                        await self._read(self._steps[waited_for])
                        waited_for += 1

    async def _read(self, step: _Step) -> TokenEvent:
        while True:
            try:
                return await step.read()
            except QueueFullError:
                if not self._begun:
                    raise
                await self._send_again(step)

    async def _send_again(self, step: _Step) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            with contextlib.suppress(QueueFullError):
                return step.send()


class _Step:
    """One beam in one round: a request for one token."""

    def __init__(self, backend: TokenSource, request: Request) -> None:
        self._backend = backend
        self._request = request
        self._stream: EventStream | None = None  # while it has a place in the engine
        self._event: TokenEvent | None = None

    def send(self) -> None:
        self._stream = self._backend.submit(self._request)

    async def read(self) -> TokenEvent:
        """Its only event; its place in the engine is free then, as it is if the engine refuses it."""
        if self._stream is not None:
            try:
                async for event in self._stream:
                    self._event = event
            finally:
                self.close()
        assert self._event is not None, "a request ends with an event"
        return self._event

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
