"""One engine for several front processes: each judges it by itself, and finds it again when it comes back."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from penstock.engine.process import EngineClient
from penstock.errors import EngineUnavailableError
from penstock.gateway.engines import (
    Death,
    KeptEngine,
    RestartPolicy,
    attached_engine,
    managed_engine,
    socket_folder,
    socket_path,
)
from penstock.gateway.health import HealthLimits
from tests.engine.engines import config_of, endless, request_of, save_model, tokens_of, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

# What takes seconds in earnest takes fractions of one here; an idle engine still beats only once a second.
QUICK = RestartPolicy(pause=0.05, max_pause=0.2, kill_after=60.0)
DEATHS: list[Death] = []
LIMITS = HealthLimits(silence=1.7, probe_every=2.0, doubt_every=0.2, hold=0.1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair() -> AsyncIterator[tuple[KeptEngine, KeptEngine]]:
    """The engine as its owner has it, and as another process would."""
    with tempfile.TemporaryDirectory() as model, socket_folder() as folder:
        path = socket_path(folder, "org/a model: 0")
        config = config_of(save_model(Path(model)))
        owner = managed_engine("chat-0", config, listen=path, limits=LIMITS, policy=QUICK)
        attached = attached_engine("chat-0", path, limits=LIMITS, on_death=DEATHS.append)
        await owner.start()
        await attached.start()
        yield owner, attached
        await attached.shutdown()
        assert len(await tokens_of(current(owner), request_of("a"))) == 8, "it goes on for the others"
        await owner.shutdown(0.0)


def states(pair: tuple[KeptEngine, KeptEngine]) -> set[str]:
    return {engine.health.state(asyncio.get_running_loop().time()) for engine in pair}


def current(engine: KeptEngine) -> EngineClient:
    assert engine.client is not None
    return engine.client


async def test_it_is_the_same_engine_to_both(pair: tuple[KeptEngine, KeptEngine]) -> None:
    owner, attached = pair
    assert attached.info == owner.info
    assert attached.pid == owner.pid
    await until(lambda: states(pair) == {"healthy"})
    request = request_of("a")
    assert await tokens_of(current(attached), request) == await tokens_of(current(owner), request)


async def test_idle_it_proves_itself_now_and_then(pair: tuple[KeptEngine, KeptEngine]) -> None:
    steps = current(pair[0]).stats.steps
    await until(lambda: current(pair[0]).stats.steps > steps)
    await until(lambda: states(pair) == {"healthy"})


async def test_stopped_at_work_it_is_out_for_both_and_back_when_it_goes_on(
    pair: tuple[KeptEngine, KeptEngine],
) -> None:
    owner, attached = pair
    process = psutil.Process(owner.pid)
    with current(attached).submit(endless("a")) as events:
        await anext(events)
        process.suspend()
        await until(lambda: states(pair) == {"unhealthy"})
        assert attached.client is not None, "it may go on"
        process.resume()
        await until(lambda: states(pair) == {"healthy"})
        assert (await anext(events)).token_ids
    assert attached.generation == owner.generation == 1


async def test_stopped_while_idle_it_is_back_after_it_has_generated_a_token(
    pair: tuple[KeptEngine, KeptEngine],
) -> None:
    owner, attached = pair
    process = psutil.Process(owner.pid)
    process.suspend()
    await until(lambda: states(pair) == {"unhealthy"})
    steps = attached.stats.steps
    process.resume()
    await until(lambda: states(pair) == {"healthy"})
    assert attached.stats.steps > steps
    assert attached.generation == owner.generation == 1


async def test_killed_it_is_found_again_by_both(
    pair: tuple[KeptEngine, KeptEngine], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    owner, attached = pair
    tokens = await tokens_of(current(attached), request_of("a"))
    with current(attached).submit(endless("b")) as events:
        await anext(events)
        os.kill(current(owner).pid, signal.SIGKILL)
        await until(lambda: not attached.health.alive and not owner.health.alive)
    await until(lambda: bool(DEATHS))
    assert [(death.generation, death.requests) for death in DEATHS] == [(1, ("b",))]
    await until(lambda: attached.generation == owner.generation == 2)
    await until(lambda: states(pair) == {"healthy"})
    assert attached.pid == owner.pid
    assert await tokens_of(current(attached), request_of("a")) == tokens
    assert "Waiting for it to come back." in caplog.text
    assert attached.deaths == owner.deaths == {"killed": 1}, "its owner knows, and tells"


async def test_an_engine_that_never_comes_is_given_up_at_the_start() -> None:
    with socket_folder() as folder:
        engine = attached_engine("chat-0", socket_path(folder, "chat-0"), within=0.2)
        with pytest.raises(EngineUnavailableError, match=r"chat-0 could not be reached within 0\.2 seconds"):
            await engine.start()
        await engine.shutdown()
