"""The call of a client whose answer others follow: notes while a write to it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from penstock.gateway.cache.flight import Flight
from penstock.gateway.exchange import AnyCall, Header


class LedCall:
    """Stands in for the client's call for as long as there is a flight."""

    __slots__ = ("_call", "_flight")

    def __init__(self, call: AnyCall, flight: Flight) -> None:
        self._call = call
        self._flight = flight

    @property
    def id(self) -> str:
        return self._call.id

    @property
    def headers(self) -> dict[bytes, bytes]:
        return self._call.headers

    @property
    def status(self) -> int:
        return self._call.status

    def when_left(self, act: Callable[[], None]) -> Callable[[], None]:
        return self._call.when_left(act)

    async def answer(
        self,
        body: bytes,
        *,
        status: int = 200,
        content_type: bytes = b"application/json",
        fields: Iterable[Header] = (),
    ) -> None:
        await self._noted(self._call.answer(body, status=status, content_type=content_type, fields=fields))

    async def start_stream(self, fields: Iterable[Header] = ()) -> None:
        await self._noted(self._call.start_stream(fields))

    async def write(self, data: bytes) -> None:
        await self._noted(self._call.write(data))

    async def end_stream(self, data: bytes) -> None:
        await self._noted(self._call.end_stream(data))

    async def _noted(self, writing: Awaitable[None]) -> None:
        self._flight.writing = asyncio.get_running_loop().time()
        try:
            await writing
        finally:
            self._flight.writing = None
