"""All engine requests behind one HTTP request: submitted together, merged, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Protocol

from penstock.engine.request import Request, TokenEvent
from penstock.gateway.local.tokens import EventStream


class Submitter(Protocol):
    """What takes requests: a backend, or a beam search through one."""

    def submit(self, request: Request) -> EventStream: ...

    def cancel(self, request_id: str, index: int | None = None) -> None: ...


class Generation:
    """Several prompts may run at once. Whoever starts one must close it, whatever happens in between."""

    def __init__(self, backend: Submitter, requests: list[Request]) -> None:
        self._backend = backend
        self._requests = requests
        self._inbox: deque[tuple[int, TokenEvent]] = deque()
        self._wake = asyncio.Event()
        self._error: BaseException | None = None
        self.begun = False  # whether anything has come of it
        self._streams: list[EventStream] = []
        self._pumps: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Submit every prompt. If the backend refuses one it raises, and closing takes the others back."""
        for position, request in enumerate(self._requests):
            events = self._backend.submit(request)
            self._streams.append(events)
            self._pumps.append(asyncio.create_task(self._pump(position, events)))

    async def wait(self, seconds: float) -> None:
        """Wait until there is something to read, but no longer than this."""
        # Not wait_for: before Python 3.12 it may swallow the news that the client has left.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def next(self) -> list[tuple[int, TokenEvent]]:
        """Wait for events; all that have come since the last call, each with its prompt's number."""
        while self._error is None and not self._inbox:
            self._wake.clear()
            await self._wake.wait()
        self.check()
        batch = list(self._inbox)
        self._inbox.clear()
        return batch

    def check(self) -> None:
        """Raise what has gone wrong, if anything has."""
        if self._error is not None:
            raise self._error

    def cancel_choice(self, position: int, index: int) -> None:
        self._backend.cancel(self._requests[position].id, index)

    def abort(self, error: BaseException) -> None:
        """Make `next` raise `error`: the client left, or the server must stop."""
        if self._error is None:
            self._error = error
            self._wake.set()

    async def close(self) -> None:
        """Stop what still runs, so that its memory is free at once."""
        for stream, pump in zip(self._streams, self._pumps, strict=True):
            stream.close()
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _pump(self, position: int, events: EventStream) -> None:
        # Events of one engine step are there together, so this loop runs through them without
        # yielding, and the reader wakes once for all of them.
        try:
            async for event in events:
                self.begun = True
                self._inbox.append((position, event))
                self._wake.set()
        except Exception as error:
            self.abort(error)
