"""Servers behind a DNS name: each of its addresses is one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

from penstock.gateway.discovery.source import Addresses, SourceError, poll
from penstock.gateway.discovery.srv import resolve_srv

RESOLVE_WITHIN = 5.0  # seconds; a name server may take longer, but nobody waits for it
Result = TypeVar("Result")
Resolver = Callable[[str, int], Iterable[tuple[str, int]]]  # name and port to addresses and ports; blocks


class DnsSource:
    """`name:port` stands for the name's A and AAAA records, `srv:name` for its SRV records."""

    def __init__(self, spec: str, every: float, resolve: Resolver | None = None) -> None:
        self._every = every
        self._lookup: asyncio.Future[Iterable[tuple[str, int]]] | None = None
        if spec.startswith("srv:"):
            self._name, self._port = spec.removeprefix("srv:"), 0
            self._resolve = resolve or resolve_srv
        else:
            host, _, port = spec.rpartition(":")
            self._name, self._port = host.strip("[]"), int(port)
            self._resolve = resolve or resolve_name

    def watch(self) -> AsyncIterator[Addresses]:
        return poll(self._look, self._every)

    async def _look(self) -> Addresses:
        if self._lookup is None:
            self._lookup = _in_thread(lambda: self._resolve(self._name, self._port))
        # One that does not come back is waited for, not asked again beside itself.
        if not (await asyncio.wait((self._lookup,), timeout=RESOLVE_WITHIN))[0]:
            raise SourceError(f"DNS has not answered for {self._name!r}.")
        lookup, self._lookup = self._lookup, None
        try:
            found = lookup.result()
        except (OSError, UnicodeError) as error:
            why = (isinstance(error, OSError) and error.strerror) or str(error)
            raise SourceError(f"DNS knows no address of {self._name!r} ({why}).") from None
        addresses = frozenset(_url(host, port) for host, port in found)
        if not addresses:
            raise SourceError(f"DNS knows no address of {self._name!r}.")
        return addresses


def resolve_name(name: str, port: int) -> list[tuple[str, int]]:
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    # An IPv6 address of one link only has its interface behind a %, which belongs to no URL.
    return [(str(address[0]), port) for *_, address in found if "%" not in str(address[0])]


def _in_thread(call: Callable[[], Result]) -> asyncio.Future[Result]:
    """What a call gives that blocks, and may do so for long: nobody waits for its thread at the end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(setter: Callable[[Any], None], value: object) -> None:
        if not future.done():
            setter(value)
            future.exception()  # now it counts as known: at the end there may be nobody who asks for it

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], object] = (future.set_result, call())
        except Exception as error:
            outcome = (future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, daemon=True, name="resolve").start()
    return future


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
