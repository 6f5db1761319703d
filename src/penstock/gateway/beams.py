"""Beam search through a backend: rounds of one-token requests that look like one request's events."""

from __future__ import annotations

from collections.abc import AsyncIterator

from penstock.engine.beam import BeamRequest, BeamSearchParams
from penstock.engine.request import Request, TokenEvent
from penstock.errors import QueueFullError
from penstock.gateway.backends import Backend, EventStream


class BeamBackend:
    """Takes requests as a backend does, and answers each by beam search."""

    def __init__(self, backend: Backend, params: BeamSearchParams) -> None:
        self._backend = backend
        self._params = params

    def submit(self, request: Request) -> BeamStream:
        beams = BeamRequest(request, self._params, self._backend.info.max_model_len)
        return BeamStream(self._backend, beams)

    def cancel(self, request_id: str, index: int | None = None) -> None:
        """Whole answers come at the end: there is nothing to stop in one of them."""


class BeamStream:
    """The search's answers, once it is over. Closing it stops the beams that are being computed."""

    def __init__(self, backend: Backend, beams: BeamRequest) -> None:
        self._backend = backend
        self._beams = beams
        self._steps: list[_Step] = []
        for request in beams.round():  # at once: if the engine is full, the client learns it now
            self._submit(request)

    async def __aiter__(self) -> AsyncIterator[TokenEvent]:
        while True:
            events = [await step.read() for step in self._steps]
            failed = next((event for event in events if not event.logprobs), None)
            if failed is not None:
                for event in self._beams.failed(failed.error, invalid=failed.invalid):
                    yield event
                return
            self._beams.take(events)
            if self._beams.done:
                break
            await self._submit_all(self._beams.round())
        for event in self._beams.events():
            yield event

    def close(self) -> None:
        for step in self._steps:
            step.close()

    async def _submit_all(self, requests: list[Request]) -> None:
        """All beams of a round at once, or as many as the engine has places for."""
        self._steps = []
        waited_for = 0
        for request in requests:
            while True:
                try:
                    self._submit(request)
                    break
                except QueueFullError:
                    if waited_for == len(self._steps):
                        raise  # others have all the places
                    await self._steps[waited_for].read()
                    waited_for += 1

    def _submit(self, request: Request) -> None:
        self._steps.append(_Step(self._backend.submit(request)))


class _Step:
    """One beam in one round: a request for one token."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._event: TokenEvent | None = None
        self._closed = False

    async def read(self) -> TokenEvent:
        """Its only event; its place in the engine is free then."""
        if self._event is None:
            async for event in self._stream:
                self._event = event
            self.close()
        assert self._event is not None, "a request ends with an event"
        return self._event

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stream.close()
