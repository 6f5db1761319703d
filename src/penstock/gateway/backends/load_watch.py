"""Watching one server: its health when nothing else shows it, and its own account of its load."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from penstock.gateway.backends.load import LoadReader
from penstock.gateway.balance import Load
from penstock.gateway.health import Health
from penstock.gateway.upstream import Origin, Timeouts, UpstreamError

logger = logging.getLogger("penstock.gateway")

TICK_SECONDS: Final = 0.5
LOAD_SECONDS: Final = 2.0  # between two readings of the load
LOAD_AGE_SECONDS: Final = 10.0  # after which a reading says nothing any more
NO_LOAD_SECONDS: Final = 60.0  # before a server that tells nothing is asked again
MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
NOBODY_THERE: Final = "it does not accept connections"

Sources = tuple[tuple[bytes, LoadReader], ...]


class Watch:
    """One task for each server. `seen` notes that bytes of an answer came, as cheaply as that can be."""

    def __init__(
        self,
        origin: Origin,
        health: Health,
        *,
        name: str,
        path: bytes | None,
        sources: Sources,
        headers: bytes,
        timeout: float,
        on_return: Callable[[], None] | None = None,
    ) -> None:
        """`name`: the backend's. `on_return` is called when the server is healthy that was not."""
        self.seen = False
        self._on_return = on_return
        self._healthy = True  # as last looked at
        self._origin = origin
        self._health = health
        self._name = name
        self._path = path
        self._sources = sources
        self._headers = headers
        self._timeouts = Timeouts(connect=timeout, first_byte=timeout, idle=timeout)
        self._load: Load | None = None
        self._load_at = float("-inf")
        self._load_next = 0.0
        self._source = 0  # which of the sources answered last
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = False
        self._refusal_told = False

    def load(self, now: float) -> Load | None:
        return self._load if now - self._load_at <= LOAD_AGE_SECONDS else None

    def start(self) -> None:
        if not self._tasks:
            self._begin(self._run())

    async def close(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        expected = time.monotonic()
        while True:
            now = time.monotonic()
            late = now - expected
            if late > TICK_SECONDS:
                self._health.excuse(late)  # it was us who stood still
            self._look(now)
            if self.seen:
                self.seen = False
                self._health.token(now)
            if self._path is not None and self._health.wants_probe(now):
                self._health.probing(now)
                self._begin(self._probe(self._path))
            if self._sources and now >= self._load_next and not self._reading and self._health.alive:
                self._load_next = now + LOAD_SECONDS
                self._reading = True
                self._begin(self._read_load())
            expected = now + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)

    def _look(self, now: float) -> None:
        healthy = self._health.state(now) == "healthy"
        if healthy and not self._healthy and self._on_return is not None:
            self._on_return()
        self._healthy = healthy

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _probe(self, path: bytes) -> None:
        try:
            status, _ = await self._get(path)
        except UpstreamError as error:
            now = time.monotonic()
            if error.kind in ("refused", "unresolved"):
                self._health.died(NOBODY_THERE, now)
            elif error.kind == "timeout":
                self._health.probed(False, now)
            else:
                self._health.probed(False, now, "it answers its health check with garbage")
            return
        now = time.monotonic()
        if status < 400:
            self._health.probed(True, now)
        elif status in (404, 405):
            self._health.probed(
                False, now, f"it has no health check at that path (status {status}; see options.health)"
            )
        elif status in (401, 403):
            self._health.probed(False, now, "it does not accept the gateway's key")
        else:
            self._health.probed(False, now, f"it answers its health check with status {status}")

    async def _read_load(self) -> None:
        refused = b""
        try:
            for step in range(len(self._sources)):
                number = (self._source + step) % len(self._sources)
                path, read = self._sources[number]
                status, page = await self._get(path)
                load = read(page) if status == 200 else None
                if load is not None:
                    self._source, self._load, self._load_at = number, load, time.monotonic()
                    return
                if status in (401, 403):
                    refused = path
            self._load_next = time.monotonic() + NO_LOAD_SECONDS
        except UpstreamError:
            pass  # whether it is healthy is for the probe to find out
        finally:
            self._reading = False
        if refused and not self._refusal_told:
            self._refusal_told = True
            logger.warning(
                "At %s: its load is not known, since its %s needs another key: at a Penstock an "
                "administrator's, or `metrics: {open: true}` there.",
                self._name, refused.decode(),
            )  # fmt: skip

    async def _get(self, path: bytes) -> tuple[int, bytes]:
        with await self._origin.request(b"GET", path, self._headers, timeout=self._timeouts) as response:
            return response.status, await response.read(MAX_PAGE_BYTES)
