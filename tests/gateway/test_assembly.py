"""Servers as a source says them: entered, let go, and nothing of it forgotten."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config import BackendConfig, DiscoverConfig, GatewayConfig, MetricsConfig, ModelConfig, Settings
from penstock.engine.request import EngineStats
from penstock.gateway import assembly as module
from penstock.gateway.assembly import Assembly
from penstock.gateway.discovery import Addresses, SharedRegistry
from penstock.observe.metrics import Metrics
from tests.observe import pages
from tests.observe.test_metrics import INFO, STATS

GOOD, OTHER, ODD = "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3/ü"


class Told:
    """A source that says what the test tells it to; an exception ends it."""

    def __init__(self) -> None:
        self.next: asyncio.Queue[Addresses | Exception] = asyncio.Queue()
        self.opened = 0

    def open(self, *_: Any) -> Told:
        self.opened += 1
        return self

    def say(self, *addresses: str) -> None:
        self.next.put_nowait(frozenset(addresses))

    async def watch(self) -> AsyncIterator[Addresses]:
        while True:
            found = await self.next.get()
            if isinstance(found, Exception):
                raise found
            yield found


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told()
    monkeypatch.setattr(module, "open_source", told.open)
    monkeypatch.setattr(module, "FOLLOW_AGAIN_SECONDS", 0.001)
    return told


def settings(*backends: BackendConfig) -> Settings:
    return Settings(gateway=GatewayConfig(models=(ModelConfig(name="m", backends=backends),)))


POOL = BackendConfig(name="pool", kind="vllm", discover=DiscoverConfig(register=True))
FIXED = BackendConfig(name="fixed", kind="vllm", url=OTHER)


async def assembled(folder: Path) -> Assembly:
    made = Assembly(settings(POOL), Metrics(), SharedRegistry(folder))
    await made.build([], {})
    return made


def members(made: Assembly) -> set[str]:
    return set(made.deployments[0].dispatcher.members)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 (what is watched is no event)
            await asyncio.sleep(0.001)


async def test_an_address_that_cannot_be_used_is_told_once_and_keeps_nobody_out(
    source: Told, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = await assembled(tmp_path)
    source.say(ODD)
    source.say(ODD, GOOD)
    await until(lambda: members(made) == {"pool/127.0.0.1:1"})
    source.say(ODD, OTHER)
    await until(lambda: members(made) == {"pool/127.0.0.1:2"})
    assert caplog.text.count("cannot be used") == 1
    assert "ASCII" in caplog.text
    source.say(OTHER)
    source.say(ODD)
    await until(lambda: not members(made))
    await until(lambda: caplog.text.count("cannot be used") == 2)  # it had left
    await made.close()


async def test_a_source_that_fails_is_told_and_asked_again(
    source: Told, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = await assembled(tmp_path)
    source.say(GOOD)
    source.next.put_nowait(RuntimeError("of no kind that is known"))
    source.say(GOOD, OTHER)
    await until(lambda: members(made) == {"pool/127.0.0.1:1", "pool/127.0.0.1:2"})
    assert source.opened == 2
    [told] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "of no kind that is known" in str(told.exc_info)
    await made.close()


async def test_a_server_that_is_found_as_its_backend_leaves_does_not_stay(
    source: Told, tmp_path: Path
) -> None:
    made = await assembled(tmp_path)
    await asyncio.sleep(0)  # the source is being watched
    source.say(GOOD)
    await made.apply(settings(FIXED))
    for _ in range(5):
        await asyncio.sleep(0)
    assert members(made) == {"fixed"}
    await made.close()


def test_an_engine_that_has_not_told_of_itself_yet_counts_with_its_deaths(tmp_path: Path) -> None:
    metrics = Metrics()
    made = Assembly(settings(FIXED), metrics, SharedRegistry(tmp_path), share=2)
    plan: Any = SimpleNamespace(model="m", files=SimpleNamespace(revision=""))
    for stats in (STATS, EngineStats()):
        engine: Any = SimpleNamespace(info=INFO, stats=stats, restarts=0, deaths={"killed": 2})
        made._engines.append((plan, engine))
    values = pages.samples(metrics.render())
    assert values.of("penstock_engine_deaths_total", model_name="m", cause="killed") == 4
    assert values["penstock_engine_running"] == [({"model_name": "m", "engine": "0"}, 2)]


@pytest.mark.parametrize("tells", [True, False])
async def test_a_reload_has_the_gpus_watched_or_left_alone(
    tells: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(Metrics, "watch_gpus", lambda self, wanted: asked.append(wanted))
    made = Assembly(settings(FIXED), Metrics(), SharedRegistry(tmp_path), tells_of_engines=tells)
    await made.build([], {})
    for wanted in (False, False, True):
        changed = settings(FIXED)
        gateway = dataclasses.replace(changed.gateway, metrics=MetricsConfig(gpu=wanted))
        await made.apply(dataclasses.replace(changed, gateway=gateway))
    await made.close()
    assert asked == ([True, False, True] if tells else []), "what has not changed goes on"
