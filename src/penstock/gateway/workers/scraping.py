"""The page of metrics of all front processes, made by their supervisor: no stream waits for that, and it
outlives them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from penstock.gateway.workers.pages import Offer, fetch
from penstock.observe.catalogue import Families
from penstock.observe.merge import Part, Retired, add, grows, settle
from penstock.observe.page import KeptPage, pieces, unhurried
from penstock.protocol.errors import HTTPError

PAGE_SECONDS: Final = 8.0  # Prometheus waits for ten


class Scraper:
    """What each process has said last, and what those had counted that were there before them.

    Nothing on the page falls: who does not answer in time is represented by what it said last; so is who is
    gone, but for its gauges.
    """

    def __init__(self, folder: Path, workers: int, vllm_names: Callable[[], bool]) -> None:
        self._folder = folder
        self._workers = workers
        self._vllm_names = vllm_names
        self._parts: dict[int, Part] = {}  # by the number of the process
        self._retired = Retired()
        self._decoder = msgspec.msgpack.Decoder(Part)

    def offer(self) -> Offer:
        """To the front processes, whichever of them is asked."""
        return Offer(_socket(self._folder), KeptPage(self._page))

    async def _page(self) -> bytes:
        there = await asyncio.gather(*(self._ask(number) for number in range(self._workers)))
        families = Families()
        for number, part in self._parts.items():
            if there[number]:
                add(families, part)
                await asyncio.sleep(0)
        for number, part in self._parts.items():
            if not there[number]:
                add(families, part, grows)
        add(families, self._retired.part())
        settle(families)
        return await unhurried(pieces(families, vllm_names=self._vllm_names()))

    async def _ask(self, number: int) -> bool:
        """Note what this process says; whether it is there."""
        try:
            part = self._decoder.decode(await fetch(part_socket(self._folder, number)))
        except TimeoutError:
            return True
        except (OSError, msgspec.MsgspecError):
            return False
        before = self._parts.get(number)
        if before is not None and before.run != part.run:
            self._retired.take(before)
        self._parts[number] = part
        return True


def part_socket(folder: Path, number: int) -> Path:
    """Where a front process offers what it has measured itself."""
    return folder / f"metrics-{number}.sock"


async def scrape(folder: Path) -> bytes:
    """The page of all, for who is one of them."""
    try:
        page = await fetch(_socket(folder), PAGE_SECONDS)
    except OSError:
        page = b""
    if not page:
        # A page of this process alone would look as if all others had started again.
        message = "The front processes' metrics cannot be put together now; ask again in a moment."
        raise HTTPError(503, message, code="metrics_unavailable")
    return page


def _socket(folder: Path) -> Path:
    return folder / "metrics.sock"
