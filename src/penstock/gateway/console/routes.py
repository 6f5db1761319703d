"""The console's endpoints: its page for everybody, what it shows for administrators."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from penstock.gateway.accounts.keys import Caller
from penstock.gateway.admin import check_admin
from penstock.gateway.call import Call, ClientGoneError
from penstock.gateway.console.console import MOST_STREAMS, Console
from penstock.gateway.console.reports import HEADERS as REPORT_HEADERS
from penstock.gateway.state import Gateway
from penstock.observe import console as page
from penstock.observe.snapshot import Snapshot
from penstock.protocol import sse
from penstock.protocol.errors import UNAVAILABLE, UNAVAILABLE_RETRY_SECONDS, HTTPError, retry

EVENT_SECONDS: Final = 1.0
BY_ACCEPT: Final = ((b"vary", b"accept"),)  # `/` is another for browsers, which caches between must know
RECENT_IN_EVENTS: Final = 50  # finished requests; all that are remembered are in the state


def wants_page(gateway: Gateway, call: Call) -> bool:
    """Whether a browser asks, and there is a page for it."""
    return gateway.config.console.enabled and b"text/html" in call.headers.get(b"accept", b"")


async def console_page(gateway: Gateway, call: Call) -> None:
    await _file(gateway, call, page.INDEX, BY_ACCEPT)


async def console_file(gateway: Gateway, call: Call, caller: Caller) -> None:
    await _file(gateway, call, call.scope["path_params"]["file"])


async def _file(gateway: Gateway, call: Call, name: str, fields: Sequence[tuple[bytes, bytes]] = ()) -> None:
    found = page.files().get(name) if gateway.config.console.enabled else None
    if found is None:
        raise HTTPError(404, "There is nothing at this path; the console is at /.", code="unknown_url")
    content, kind = found
    await call.answer(content, content_type=kind.encode(), fields=[*_fields(page.HEADERS), *fields])


async def console_state(gateway: Gateway, call: Call, caller: Caller) -> None:
    await call.answer_json(await _console(gateway, call, caller).snapshot())


async def console_report(gateway: Gateway, call: Call, caller: Caller) -> None:
    console = _console(gateway, call, caller)
    try:
        report = await console.report(call.scope["path_params"]["report"])
    except TimeoutError:
        raise HTTPError(
            503, "The folder of reports does not answer.", code="report_unavailable", type=UNAVAILABLE
        ) from None
    if report is None:
        raise HTTPError(404, "There is no such report; /console/state lists them.", code="report_not_found")
    await call.answer(report, content_type=b"text/html; charset=utf-8", fields=_fields(REPORT_HEADERS))


async def console_events(gateway: Gateway, call: Call, caller: Caller) -> None:
    """The state each second, until the client leaves or the server ends."""
    console = _console(gateway, call, caller)
    if console.streams >= MOST_STREAMS:
        raise HTTPError(
            503,
            f"{MOST_STREAMS} consoles are open already; close one of them.",
            code="too_many_consoles",
            type=UNAVAILABLE,
            headers=retry(UNAVAILABLE_RETRY_SECONDS),
        )
    console.streams += 1
    over = asyncio.Event()
    stop_watching = call.when_left(over.set)
    ending = asyncio.create_task(_set_after(gateway.stopped, over))
    try:
        first = _event(await console.snapshot())
        await call.start_stream()
        if call.scope["method"] == "HEAD":
            await call.end_stream(b"")
        else:
            await _stream(gateway, call, console, first, over)
    finally:
        console.streams -= 1
        ending.cancel()
        stop_watching()


async def _stream(gateway: Gateway, call: Call, console: Console, event: bytes, over: asyncio.Event) -> None:
    while await _written(call, event, over):
        if await _within(over, EVENT_SECONDS):
            break
        if not _may_go_on(gateway, call):
            await call.end_stream(b"")
            return
        event = _event(await console.snapshot())
    else:
        call.hang_up()  # it takes nothing any more, and the server does not wait for it
    if not gateway.stopped.is_set():
        raise ClientGoneError
    await call.end_stream(b"")


async def _written(call: Call, data: bytes, over: asyncio.Event) -> bool:
    """False: it was over before the client took what it has."""
    writing, waiting = asyncio.ensure_future(call.write(data)), asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait((writing, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():
            return False
        writing.result()
        return True
    finally:
        writing.cancel()
        waiting.cancel()


def _may_go_on(gateway: Gateway, call: Call) -> bool:
    """Keys are revoked and consoles turned off while somebody looks."""
    try:
        _console(gateway, call, gateway.keys.check(call.headers))
    except HTTPError:
        return False
    return True


def _event(snapshot: Snapshot) -> bytes:
    return sse.event(msgspec.structs.replace(snapshot, recent=snapshot.recent[:RECENT_IN_EVENTS]))


async def _set_after(stopped: asyncio.Event, over: asyncio.Event) -> None:
    await stopped.wait()
    over.set()


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def _console(gateway: Gateway, call: Call, caller: Caller) -> Console:
    check_admin(gateway, call, caller)
    if gateway.console is None or not gateway.config.console.enabled:
        raise HTTPError(
            404, "The console is off; 'console: {enabled: true}' turns it on.", code="console_off"
        )
    return gateway.console


def _fields(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]
