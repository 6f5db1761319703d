"""The registry for several processes of one server: a file that each of them reads and writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.gateway.discovery.registry import Registry
from penstock.gateway.discovery.source import Addresses, SourceError, poll
from penstock.gateway.shared_file import SharedFile

LOOK_EVERY = 0.5  # seconds; how soon a server that registered with one process is known to the others
Result = TypeVar("Result")
Expiries = dict[str, dict[str, float]]


class SharedRegistry:
    """A `Registry` in a folder of this user's alone. Whichever process a server registers with, all know it.

    Times are of the machine's monotonic clock, which all processes share; the folder goes with the server.
    """

    def __init__(self, folder: Path) -> None:
        self._file: SharedFile[Expiries] = SharedFile(folder / "registry.json", Expiries, dict)

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
        def changed(expiries: Expiries) -> tuple[Expiries, Result]:
            registry = Registry(expiries)
            result = change(registry, time.monotonic())
            return {group: dict(servers) for group, servers in registry.expiries.items()}, result

        try:
            return await asyncio.to_thread(self._file.change, changed)
        except msgspec.MsgspecError as error:
            raise _unreadable(error) from None

    def _read(self) -> Registry:
        try:
            return Registry(self._file.read())
        except (OSError, msgspec.MsgspecError) as error:
            raise _unreadable(error) from None


def _unreadable(error: Exception) -> SourceError:
    return SourceError(f"The registry of servers cannot be read ({type(error).__name__}).")


class RegisteredSource:
    """The servers that have registered for one group."""

    def __init__(self, registry: SharedRegistry, group: str) -> None:
        self._registry = registry
        self._group = group

    def watch(self) -> AsyncIterator[Addresses]:
        return self._registry.watch(self._group)
