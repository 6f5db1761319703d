"""Drives an engine in this process: step by step, for everybody whose requests it has."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from penstock.engine.opening import Core
from penstock.engine.request import TokenEvent
from penstock.errors import PenstockError, QueueFullError
from penstock.llm.outputs import StreamChunk
from penstock.llm.running import Gathering, Running, check


class Driver:
    """Several streams may be read at once, by several threads: whoever asks for a step does it for all."""

    def __init__(self, engine: Core) -> None:
        self._engine: Core | None = engine
        self._open: dict[str, Gathering] = {}
        self._turn = threading.RLock()  # the engine serves one caller at a time

    def close(self) -> None:
        """Let go of the engine; what is still open ends with an error."""
        with self._turn:
            for gathering in self._open.values():
                gathering.error = PenstockError("The LLM was closed before this was complete.")
            self._open.clear()
            self._engine = None

    def run(self, started: Sequence[Gathering], advance: Callable[[int], None] = lambda tokens: None) -> None:
        """Run all of them to their ends, as many at once as the engine takes."""
        waiting = deque(started)
        running: list[Gathering] = []
        try:
            while waiting or running:
                self._submit_what_fits(waiting, running)
                self._step()
                ended = [each for each in running if check(each)]
                running = [each for each in running if not each.over]
                for each in ended:
                    advance(each.num_tokens)
        finally:
            for each in running:
                self._abandon(each)

    def stream(self, running: Running) -> Iterator[StreamChunk]:
        """Its chunks as they come; whoever stops reading stops it."""
        chunks: deque[StreamChunk] = deque()
        running.chunks = chunks
        self._submit(running)
        try:
            while not check(running) or chunks:
                if chunks:
                    yield chunks.popleft()
                else:
                    self._step()
        finally:
            self._abandon(running)

    @property
    def _core(self) -> Core:
        if self._engine is None:
            raise PenstockError("The LLM is closed.")
        return self._engine

    def _submit(self, gathering: Gathering) -> None:
        with self._turn:
            self._core.submit(gathering.request, gathering.processors)
            self._open[gathering.request.id] = gathering

    def _submit_what_fits(self, waiting: deque[Gathering], running: list[Gathering]) -> None:
        while waiting:
            try:
                self._submit(waiting[0])
            except QueueFullError:
                if not self._core.has_work:
                    raise
                return
            running.append(waiting.popleft())

    def _step(self) -> None:
        """One step for everybody; each request gets its own events, whoever asked for the step."""
        with self._turn:
            for event in self._core.step():
                self._deliver(event)

    def _deliver(self, event: TokenEvent) -> None:
        gathering = self._open.get(event.request_id)
        if gathering is None:
            return
        if gathering.take(event):
            self._core.cancel(event.request_id, event.index)
        if gathering.over:
            del self._open[event.request_id]

    def _abandon(self, gathering: Gathering) -> None:
        with self._turn:
            if self._open.pop(gathering.request.id, None) is not None:
                self._core.cancel(gathering.request.id)
