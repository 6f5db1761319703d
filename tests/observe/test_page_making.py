"""How the page is made: at the cap of its labels nobody else has to wait for it, nor is it made for each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from penstock.config import GatewayConfig, ModelConfig
from penstock.observe.merge import Part
from penstock.observe.metrics import Metrics
from penstock.observe.page import KEPT_BYTES, KeptPage, pieces
from penstock.observe.request_metrics import RequestMetrics
from tests.observe.test_request_metrics import record

MODELS = tuple(f"model-{number}" for number in range(4))
TENANTS = 1000
MOST_LINES = 1000  # that are written at once


@pytest.fixture(scope="module")
def full() -> Metrics:
    """Each of as many tenants as are told apart has asked each model."""
    metrics = Metrics()
    metrics.configure(GatewayConfig(models=tuple(ModelConfig(name=name) for name in MODELS)), MODELS)
    listener = RequestMetrics(metrics)
    for number in range(TENANTS):
        for model in MODELS:
            listener.finished(
                record(tenant=f"tenant-{number}", served_by=model, prompt_tokens=57, dollars=0.00123)
            )
    return metrics


async def turns(make: Callable[[], Awaitable[bytes]]) -> tuple[int, bytes]:
    """How often others who are always ready had their turn while it was made."""
    count = 0

    async def other() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    waiting = asyncio.create_task(other())
    await asyncio.sleep(0)
    made = await make()
    waiting.cancel()
    return count, made


async def test_a_stream_does_not_wait_for_the_page(full: Metrics) -> None:
    count, page = await turns(full.page)
    assert count > page.count(b"\n") / MOST_LINES
    assert max(len(piece) for piece in pieces(full.families, vllm_names=True)) <= MOST_LINES


async def test_nor_for_what_a_process_tells_the_supervisor(full: Metrics) -> None:
    count, told = await turns(full.part)
    families = msgspec.msgpack.decode(told, type=Part).families
    assert len(families) > 10
    assert count > 10


def test_what_is_known_of_labels_is_not_written_again(full: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    page = full.render()
    written: list[str] = []
    monkeypatch.setattr("penstock.observe.instruments._quoted", lambda text: written.append(text) or text)
    assert full.render().count(b"\n") == page.count(b"\n")
    assert not any(text.startswith("tenant-") for text in written)


class Making:
    def __init__(self, page: bytes) -> None:
        self.page = page
        self.times = 0

    async def __call__(self) -> bytes:
        self.times += 1
        await asyncio.sleep(0.01)
        if not self.page:
            raise ValueError
        return self.page


async def test_it_is_made_once_for_all_who_ask_at_the_same_time() -> None:
    making = Making(b"small")
    kept = KeptPage(making)
    leaving = asyncio.create_task(kept())
    await asyncio.sleep(0)
    asking = [asyncio.create_task(kept()) for _ in range(50)]
    await asyncio.sleep(0)
    leaving.cancel()
    assert set(await asyncio.gather(*asking)) == {b"small"}
    assert making.times == 1
    await kept()
    assert making.times == 2, "one that takes no time is never out of date"


async def test_a_large_one_is_kept_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.observe.page.KEPT_SECONDS", 600.0)
    making = Making(b"x" * KEPT_BYTES)
    kept = KeptPage(making)
    for _ in range(3):
        await kept()
    assert making.times == 1
    kept._until = time.monotonic()
    await kept()
    assert making.times == 2


async def test_a_failure_is_not_kept() -> None:
    making = Making(b"")
    kept = KeptPage(making)
    with pytest.raises(ValueError):
        await kept()
    making.page = b"well"
    assert await kept() == b"well"
