"""Real engines that are killed, stopped and taken away: they come back by themselves."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from penstock.engine.messages import Failed
from penstock.engine.process import EngineClient
from penstock.errors import ConfigError, EngineUnavailableError, ModelError
from penstock.gateway.engines import (
    Death,
    KeptEngine,
    RestartPolicy,
    managed_engine,
    socket_folder,
    start_engines,
)
from penstock.gateway.health import HealthLimits
from tests.engine.engines import config_of, endless, request_of, save_model, tokens_of, until

# What takes seconds in earnest takes fractions of one here; an idle engine still beats only once a second.
QUICK = RestartPolicy(pause=0.05, max_pause=0.2, kill_after=60.0)
LIMITS = HealthLimits(silence=1.7, doubt_every=0.2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@asynccontextmanager
async def managed(model: Path, **options: object) -> AsyncIterator[KeptEngine]:
    engine = managed_engine("chat-0", config_of(model), **{"limits": LIMITS, "policy": QUICK, **options})
    await engine.start()
    try:
        yield engine
    finally:
        await engine.shutdown(0.0)


def state(engine: KeptEngine) -> str:
    return engine.health.state(asyncio.get_running_loop().time())


def current(engine: KeptEngine) -> EngineClient:
    assert engine.client is not None
    return engine.client


async def test_a_killed_engine_is_out_at_once_started_again_and_answers(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deaths: list[Death] = []

    def remember_badly(death: Death) -> None:
        deaths.append(death)
        raise ZeroDivisionError

    async with managed(model, on_death=remember_badly) as engine:
        before = await tokens_of(current(engine), request_of("a"))
        first, pid = current(engine), engine.pid
        assert (engine.generation, engine.restarts, state(engine)) == (1, 0, "healthy")
        with first.submit(endless("x")) as lost, first.submit(endless("y")):
            await anext(lost)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(EngineUnavailableError, match="signal 9"):
                async for _ in lost:
                    pass
        await until(lambda: bool(deaths))
        assert state(engine) in ("dead", "starting")
        await until(lambda: engine.client is not None)
        assert (engine.generation, engine.restarts, state(engine)) == (2, 1, "healthy")
        assert engine.pid != pid
        assert engine.deaths == {"killed": 1}
        assert await tokens_of(current(engine), request_of("a")) == before
    assert [(death.engine, death.generation, death.cause, death.requests) for death in deaths] == [
        ("chat-0", 1, "killed", ("x", "y"))
    ]
    said = [record.getMessage() for record in caplog.records if record.name == "penstock.engines"]
    assert said[0] == "Nobody could be told of the death of engine chat-0."
    assert "Engine chat-0: The engine process ended unexpectedly (signal 9). Starting it again in" in said[1]
    assert "attempt 1." in said[1]
    assert "runs again" in said[-1]


async def test_an_engine_that_stays_stuck_is_killed_and_started_again(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = RestartPolicy(pause=0.05, max_pause=0.2, kill_after=1.0)
    async with managed(model, policy=policy) as engine:
        psutil.Process(engine.pid).suspend()
        await until(lambda: engine.generation == 2)
        assert len(await tokens_of(current(engine), request_of("a"))) == 8
        assert state(engine) == "healthy"
        assert engine.deaths == {"stuck": 1}
    assert "is stuck (it has shown no progress for" in caplog.text


async def test_an_engine_that_the_kernel_kills_has_died_for_want_of_memory(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = 3
    monkeypatch.setattr("penstock.engine.process.oom_kills", lambda: kills)
    async with managed(model) as engine:
        kills += 1
        os.kill(current(engine).pid, signal.SIGKILL)
        await until(lambda: engine.generation == 2)
        assert engine.deaths == {"out_of_memory": 1}
        os.kill(current(engine).pid, signal.SIGKILL)
        await until(lambda: engine.generation == 3)
        assert engine.deaths == {"out_of_memory": 1, "killed": 1}


async def test_a_death_that_cannot_be_noted_keeps_nobody_from_starting_it_again(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket_folder() as folder:
        async with managed(model, listen=folder / "e.sock") as engine:
            shutil.rmtree(folder)
            os.kill(current(engine).pid, signal.SIGKILL)
            await until(lambda: engine.deaths == {"killed": 1})
            folder.mkdir(0o700)
            await until(lambda: engine.generation == 2)
    assert caplog.text.count("cannot be told of its death") == 1


async def test_an_engine_that_says_so_has_died_for_want_of_memory(model: Path) -> None:
    async with managed(model) as engine:
        current(engine)._handle(Failed("EngineUnavailableError", "The engine stopped.", out_of_memory=True))
        await until(lambda: engine.generation == 2)
        current(engine)._handle(Failed("EngineUnavailableError", "The engine stopped."))
        await until(lambda: engine.generation == 3)
        assert engine.deaths == {"out_of_memory": 1, "crashed": 1}


async def test_what_keeps_an_engine_from_its_first_start_is_raised(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        async with managed(tmp_path / "nothing"):
            pass
    engine = managed_engine("chat-0", config_of(model, max_model_len=100_000), policy=QUICK)
    with pytest.raises(ConfigError):
        await engine.start()
    assert engine.client is None
    await engine.shutdown(0.0)
    slow = managed_engine("chat-0", config_of(model), policy=RestartPolicy(start_within=0.01))
    with pytest.raises(EngineUnavailableError, match=r"not loaded within 0\.01 seconds"):
        await slow.start()


async def test_a_restart_that_fails_is_tried_until_it_succeeds(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    moved = tmp_path / "moved"
    here = tmp_path / "model"
    here.symlink_to(model)
    async with managed(here) as engine:
        here.rename(moved)
        os.kill(current(engine).pid, signal.SIGKILL)
        await until(lambda: "attempt 2." in caplog.text)
        assert engine.client is None
        assert state(engine) == "dead"
        moved.rename(here)
        await until(lambda: engine.generation == 2)
        assert len(await tokens_of(current(engine), request_of("a"))) == 8


async def test_shutting_down_leaves_no_process_whatever_goes_on(model: Path) -> None:
    me = psutil.Process()
    before = set(me.children())
    async with managed(model) as engine:
        os.kill(current(engine).pid, signal.SIGKILL)
        # In the middle of the restart.
        await until(lambda: engine.client is None and len(set(me.children()) - before) == 1)
    assert set(me.children()) == before
    assert engine.client is None


# ---------------------------------------------------------------- several


async def test_several_start_a_few_at_a_time_and_all_answer(model: Path) -> None:
    engines = [managed_engine(f"chat-{at}", config_of(model), policy=QUICK) for at in range(2)]
    me = psutil.Process()
    others = len(me.children())
    starting = asyncio.create_task(start_engines(engines, at_once=1))
    most = 0
    while not starting.done():
        loading = len(me.children()) - others - sum(engine.client is not None for engine in engines)
        most = max(most, loading)
        await asyncio.sleep(0.01)
    await starting
    assert most == 1
    answers = [await tokens_of(current(engine), request_of("a")) for engine in engines]
    assert answers[0] == answers[1]
    for engine in engines:
        await engine.shutdown(0.0)


async def test_one_that_cannot_start_leaves_none_running(model: Path, tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    engines = [
        managed_engine("good", config_of(model)),
        managed_engine("bad", config_of(tmp_path / "nothing")),
    ]
    with pytest.raises(ModelError):
        await start_engines(engines, at_once=2)
    assert set(psutil.Process().children()) == before
