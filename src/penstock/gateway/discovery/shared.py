"""The registry for several processes of one server: a file that each of them reads and writes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.gateway.discovery.registry import Registry
from penstock.gateway.discovery.source import Addresses, SourceError, poll

LOOK_EVERY = 0.5  # seconds; how soon a server that registered with one process is known to the others
Result = TypeVar("Result")
_decoder = msgspec.json.Decoder(dict[str, dict[str, float]])


class SharedRegistry:
    """A `Registry` in a folder of this user's alone. Whichever process a server registers with, all know it.

    Times are of the machine's monotonic clock, which all processes share; the folder goes with the server.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "registry.json"
        self._lock = folder / "registry.lock"

    async def register(self, group: str, url: str, ttl: float) -> bool:
        """Know a server for `ttl` seconds; whether it is new. Raises InvalidRequestError, QueueFullError."""
        return await self._change(lambda registry, now: registry.register(group, url, ttl, now))

    async def deregister(self, group: str, url: str) -> bool:
        """Forget a server; whether it was known."""
        return await self._change(lambda registry, now: registry.deregister(group, url, now))

    async def expiries(self, group: str) -> Mapping[str, float]:
        """The servers of a group, and for how many seconds more each is known."""
        registry, now = await asyncio.to_thread(self._read), time.monotonic()
        servers = registry.expiries.get(group, {})
        return {url: expiry - now for url, expiry in servers.items() if expiry > now}

    def watch(self, group: str) -> AsyncIterator[Addresses]:
        async def look() -> Addresses:
            registry = await asyncio.to_thread(self._read)
            return registry.addresses(group, time.monotonic())

        return poll(look, LOOK_EVERY)

    async def _change(self, change: Callable[[Registry, float], Result]) -> Result:
        return await asyncio.to_thread(self._change_now, change)

    def _change_now(self, change: Callable[[Registry, float], Result]) -> Result:
        with self._locked():
            registry = self._read()
            result = change(registry, time.monotonic())
            # Readers see the file before or after, never half of it.
            passing = self._path.with_suffix(f".{os.getpid()}")
            passing.write_bytes(msgspec.json.encode(registry.expiries))
            passing.rename(self._path)
            return result

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> Registry:
        try:
            return Registry(_decoder.decode(self._path.read_bytes()))
        except FileNotFoundError:
            return Registry()
        except (OSError, msgspec.MsgspecError) as error:
            raise SourceError(f"The registry of servers cannot be read ({type(error).__name__}).") from None


class RegisteredSource:
    """The servers that have registered for one group."""

    def __init__(self, registry: SharedRegistry, group: str) -> None:
        self._registry = registry
        self._group = group

    def watch(self) -> AsyncIterator[Addresses]:
        return self._registry.watch(self._group)
