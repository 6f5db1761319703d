"""The page that a supervisor makes of what its front processes say of themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.gateway.workers.pages import Offer
from penstock.gateway.workers.scraping import Scraper, part_socket, scrape
from penstock.observe.metrics import Metrics
from penstock.protocol.errors import HTTPError
from tests.observe.pages import samples


class Process:
    """What a front process has counted, and a gauge."""

    def __init__(self, folder: Path, number: int, asked: int) -> None:
        self._path = part_socket(folder, number)
        self.metrics = Metrics()
        self.metrics.families.http.labels("/a", "GET", "200").inc(asked)
        self.metrics.families.route_seconds.labels().observe(asked)
        self.metrics.families.waiting_tokens.labels("m").set(asked)

    def offer(self) -> Offer:
        return Offer(self._path, self.metrics.part)


async def counted(folder: Path) -> tuple[float, float, float]:
    """Requests, seconds and waiting tokens of all together."""
    page = samples(await scrape(folder))
    names = "penstock_http_requests_total", "penstock_route_seconds_sum", "penstock_queue_tokens"
    asked, seconds, waiting = (sum(value for _, value in page.get(name, [])) for name in names)
    return asked, seconds, waiting


async def test_what_a_process_had_counted_stays_when_it_is_gone_and_when_another_has_its_place(
    tmp_path: Path,
) -> None:
    scraper = Scraper(tmp_path, 2, lambda: False)
    async with scraper.offer(), Process(tmp_path, 0, 3).offer():
        async with Process(tmp_path, 1, 4).offer():
            assert await counted(tmp_path) == (7, 7, 7)
        assert await counted(tmp_path) == (7, 7, 3)
        async with Process(tmp_path, 1, 10).offer():
            assert await counted(tmp_path) == (17, 17, 13)
        assert await counted(tmp_path) == (17, 17, 3)


async def test_a_process_that_does_not_answer_in_time_has_what_it_said_last(tmp_path: Path) -> None:
    scraper, late = Scraper(tmp_path, 1, lambda: False), asyncio.Event()
    process = Process(tmp_path, 0, 3)

    async def hanging() -> bytes:
        await late.wait()
        return await process.metrics.part()

    async with scraper.offer():
        async with process.offer():
            assert await counted(tmp_path) == (3, 3, 3)
        async with Offer(part_socket(tmp_path, 0), hanging):
            assert await counted(tmp_path) == (3, 3, 3)
            late.set()


async def test_where_nobody_puts_the_page_together_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(HTTPError) as caught:
        await scrape(tmp_path)
    assert (caught.value.status, caught.value.code) == (503, "metrics_unavailable")
