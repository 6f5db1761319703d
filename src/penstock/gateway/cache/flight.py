"""Single flight: of identical requests at one time, one is answered, and the others follow its answer.

Only requests with the same key meet here, so all are the same tenant's. Whoever comes late gets what has come
so far, and then the rest as it comes. What is asked for while nobody is left to read it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from penstock.gateway.cache.entry import Entry
from penstock.gateway.call import ClientGoneError
from penstock.gateway.exchange import Exchange
from penstock.protocol.shapes import UsageCount

MAX_FOLLOWERS: Final = 256  # of one answer; more are answered apart
MAX_FLIGHTS: Final = 10_000
# Seconds that a write to the client that leads may take before nobody follows any more, and before those who
# have nothing yet ask for themselves: the answer comes no faster than that client reads it.
SLOW_S: Final = 0.5
STALLED_S: Final = 2.0


class FlightLostError(Exception):
    """The request that was followed was not answered to its end."""


class Flight:
    """One answer on its way, `streams` if it comes in parts."""

    def __init__(self, key: bytes, leader: Exchange) -> None:
        self.key = key
        self.leader = leader
        self.streams = leader.inquiry.stream
        self.entry: Entry | None = None  # what was kept of it, once it has landed
        self.usage = UsageCount()
        self.followers = 0
        self.writing: float | None = None  # the loop's time at which the leader's write began that goes on
        self._parts: list[bytes] = []
        self._over = False
        self._lost = False
        self._waiting: set[asyncio.Future[None]] = set()

    def add(self, data: bytes) -> None:
        if data:
            self._parts.append(data)
            self._wake()

    def land(self, entry: Entry | None, usage: UsageCount) -> None:
        """The answer is complete."""
        self.entry, self.usage = entry, usage
        self._over = True
        self._wake()

    def lose(self) -> None:
        if not self._over:
            self._over = self._lost = True
            if not self.followers:
                self._parts.clear()
            self._wake()

    def blocked(self, seconds: float) -> bool:
        """Whether the client that leads has not taken what is written to it for so long."""
        return self.writing is not None and asyncio.get_running_loop().time() - self.writing >= seconds

    async def parts(self, follower: Exchange) -> AsyncIterator[bytes]:
        """From the first to the last. Raises FlightLostError when there will be no more of them, or none for
        long while the follower has had none."""
        sent = 0
        while True:
            while sent < len(self._parts):
                sent += 1
                yield self._parts[sent - 1]
            if self._over:
                break
            await self._change(leaves=not follower.started)
        if self._lost:
            raise FlightLostError

    async def landed(self) -> Entry | None:
        """What was kept of the whole; None: it is not for others. Raises FlightLostError."""
        while not self._over:
            await self._change(leaves=True)
        if self._lost:
            raise FlightLostError
        return self.entry

    def leave(self) -> None:
        """A follower goes. The last of them ends the work if the client that leads has gone before."""
        self.followers -= 1
        if not self.followers and self.leader.left:
            self.leader.abort(ClientGoneError())

    async def _change(self, *, leaves: bool) -> None:
        """Wait for more; `leaves`: raise FlightLostError if the leader keeps it from coming."""
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        self._waiting.add(waiting)
        look = loop.call_later(STALLED_S, _wake, waiting) if leaves else None
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)
            if look is not None:
                look.cancel()
        if leaves and not self._over and self.blocked(STALLED_S):
            raise FlightLostError

    def _wake(self) -> None:
        for waiting in self._waiting:
            _wake(waiting)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Flights:
    """All that are under way in this process."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[bytes, bool], Flight] = {}

    def join(self, key: bytes, *, stream: bool) -> Flight | None:
        """One to follow; to be left again. A stream follows none that comes in one piece at its end."""
        found = self._by_key.get((key, True))
        if found is None and not stream:
            found = self._by_key.get((key, False))
        if found is None or found.followers >= MAX_FOLLOWERS or found.blocked(SLOW_S):
            return None
        found.followers += 1
        return found

    def lead(self, key: bytes, leader: Exchange) -> Flight | None:
        """One that others may follow from now on; None: there is one already, or there are too many."""
        place = key, leader.inquiry.stream
        if place in self._by_key or len(self._by_key) >= MAX_FLIGHTS:
            return None
        flight = self._by_key[place] = Flight(key, leader)
        return flight

    def end(self, flight: Flight) -> None:
        """Nobody joins it any more."""
        place = flight.key, flight.streams
        with suppress(KeyError):
            if self._by_key[place] is flight:
                del self._by_key[place]

    def end_all(self) -> None:
        self._by_key.clear()

    def __len__(self) -> int:
        return len(self._by_key)
