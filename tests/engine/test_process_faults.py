"""An engine in its own process: how it begins and ends, well and badly."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import msgspec
import psutil
import pytest
import torch
import uvloop
from safetensors.torch import load_file, save_file

from penstock.engine import process
from penstock.engine.messages import Cancel, Failed, FrameReader, FromEngine, Loaded, frame, submit
from penstock.engine.process import EngineClient, EventStream
from penstock.errors import ConfigError, EngineUnavailableError, ModelError, PenstockError, QueueFullError
from tests.engine.engines import (
    INFO,
    answers_to,
    config_of,
    endless,
    request_of,
    save_model,
    tokens_of,
    until,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


async def error_of(events: EventStream) -> PenstockError:
    """The error that a stream ends with."""
    with pytest.raises(PenstockError) as caught:
        async for _ in events:
            pass
    return caught.value


# ---------------------------------------------------------------- the end


async def test_a_killed_engine_is_told_to_everybody(model: Path) -> None:
    client = await EngineClient.start(config_of(model))
    streams = [client.submit(endless(str(at), n=2)) for at in range(3)]
    for stream in streams[:2]:
        await anext(stream)
    psutil.Process(client.pid).kill()
    for stream in streams:
        error = await error_of(stream)
        assert isinstance(error, EngineUnavailableError)
        assert "signal 9" in str(error)
        stream.close()
    assert not client.alive
    assert not await client.probe()
    client.cancel("0")
    for _ in range(3):
        with pytest.raises(EngineUnavailableError, match="signal 9") as caught:
            client.submit(request_of("late"))
        assert len(traceback.extract_tb(caught.value.__traceback__)) < 5, "the error gathers frames"
    await client.shutdown(1.0)


async def test_errors_raised_to_several_do_not_share_their_traces(model: Path) -> None:
    client = await EngineClient.start(config_of(model))
    streams = [client.submit(endless(str(at))) for at in range(2)]
    await client.kill()
    first, second = [await error_of(stream) for stream in streams]
    assert first is not second
    assert str(first) == str(second)
    assert first.__traceback__ is not None
    for stream in streams:
        stream.close()


async def test_draining_finishes_what_was_accepted_and_takes_nothing_new(model: Path) -> None:
    client = await EngineClient.start(config_of(model))
    answers = [
        asyncio.create_task(answers_to(client, request_of(str(at), max_tokens=500))) for at in range(6)
    ]
    await until(lambda: client.stats.running == 4)
    draining = asyncio.create_task(client.shutdown(60.0))
    await asyncio.sleep(0)
    with pytest.raises(EngineUnavailableError, match="shutting down"):
        client.submit(request_of("late"))
    for answer in await asyncio.gather(*answers):
        assert answer[0].ends == ["length"]
        assert len(answer[0].tokens) == 500
    await draining
    assert client._process.returncode == 0
    assert not client.alive


async def test_an_idle_engine_drains_at_once_and_twice_is_no_error(model: Path) -> None:
    client = await EngineClient.start(config_of(model))
    await client.shutdown(60.0)
    assert client._process.returncode == 0
    await client.shutdown(60.0)


@pytest.mark.parametrize("drain", [0.0, 0.2])
async def test_what_is_not_done_when_draining_ends_gets_an_error(model: Path, drain: float) -> None:
    client = await EngineClient.start(config_of(model, max_running=1))
    with client.submit(endless("a")) as running, client.submit(endless("b")) as waiting:
        await anext(running)
        await client.shutdown(drain)
        assert client._process.returncode == 0
        for events in (running, waiting):
            assert "has shut down" in str(await error_of(events))


async def test_an_engine_that_does_not_listen_is_killed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "KILL_AFTER", 0.2)
    client = await EngineClient.start(config_of(model))
    psutil.Process(client.pid).suspend()
    with client.submit(endless("a")) as events:
        await client.shutdown(0.0)
        assert client._process.returncode == -signal.SIGKILL
        assert isinstance(await error_of(events), EngineUnavailableError)


async def test_an_engine_that_does_not_read_is_sent_no_more_than_a_bounded_amount(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MAX_UNSENT", 1 << 20)
    monkeypatch.setattr(process, "KILL_AFTER", 0.2)
    client = await EngineClient.start(config_of(model))
    psutil.Process(client.pid).suspend()

    def come_and_go() -> None:
        for at in range(1000):
            client.submit(endless(str(at), prompt=[200] * 4000)).close()

    with pytest.raises(QueueFullError, match="not taken up"):
        come_and_go()
    await client.shutdown(0.0)


# ---------------------------------------------------------------- the parent

PARENT = """
    import asyncio, sys
    from penstock.engine.config import EngineConfig
    from penstock.engine.process import EngineClient
    from penstock.engine.request import Request, SamplingParams

    async def main() -> None:
        client = await EngineClient.start(EngineConfig(model=sys.argv[1], kv_cache_memory=8 << 20, threads=1))
        request = Request(id="a", prompt=[1], params=SamplingParams(ignore_eos=True))
        with client.submit(request) as events:
            await anext(events)
            print(client.pid, "torch" in sys.modules, flush=True)
            if sys.argv[2] == "wait":
                async for _ in events:
                    pass
                await asyncio.sleep(60)

    asyncio.run(main())
"""


def parent_of_an_engine(model: Path, then: str) -> tuple[subprocess.Popen[str], psutil.Process, bool]:
    """A process that has started an engine, the engine, and whether the parent has imported torch."""
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), str(model), then], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid, imported = parent.stdout.readline().split()
    return parent, psutil.Process(int(pid)), imported == "True"


@pytest.mark.parametrize("then", ["wait", "leave"])
def test_the_engine_ends_with_its_parent_which_never_imports_torch(model: Path, then: str) -> None:
    parent, engine, imported = parent_of_an_engine(model, then)
    with parent:
        if then == "wait":
            parent.kill()
        engine.wait(timeout=20)
        assert not imported


# ---------------------------------------------------------------- the beginning


def test_it_starts_on_the_servers_event_loop_wherever_one_is(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A model's folder may hold anything; what is called like a module is still not imported.
    for name in ("torch", "msgspec", "select", "penstock"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('code from the current folder was run')")
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        client = await EngineClient.start(config_of(model))
        assert len(await tokens_of(client, request_of("a"))) == 8
        await client.shutdown(5.0)
        assert client._process.returncode == 0

    uvloop.run(main())


async def test_a_truncated_model_file_is_told_in_a_sentence(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"^\S+model\.safetensors is incomplete: .*\.$") as caught:
        await EngineClient.start(config_of(tmp_path))
    assert "\n" not in str(caught.value)


async def test_a_model_that_cannot_generate_does_not_start(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    weights = load_file(model / "model.safetensors")
    save_file({name: weight * torch.nan for name, weight in weights.items()}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"does not compute: .* not a number"):
        await EngineClient.start(config_of(tmp_path))


async def test_a_process_that_cannot_be_started_leaves_nothing_open(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    before = psutil.Process().num_fds()
    for _ in range(5):
        with pytest.raises(FileNotFoundError):
            await EngineClient.start(config_of(model))
    await until(lambda: psutil.Process().num_fds() <= before)


async def test_an_option_that_the_model_cannot_meet_is_a_configuration_error(model: Path) -> None:
    with pytest.raises(ConfigError, match="max_model_len is 100000"):
        await EngineClient.start(config_of(model, max_model_len=100_000))


async def test_giving_up_on_a_start_leaves_no_process_behind(model: Path) -> None:
    me = psutil.Process()
    before = set(me.children())
    starting = asyncio.create_task(EngineClient.start(config_of(model)))
    await until(lambda: bool(set(me.children()) - before))
    await asyncio.sleep(0.05)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert set(me.children()) == before


# ---------------------------------------------------------------- messages

GARBAGE = {
    "no msgpack": struct.pack("<I", 3) + b"\xc1\xc1\xc1",
    "no message": struct.pack("<I", 1) + msgspec.msgpack.encode(5),
    "an unknown message": frame(Loaded(INFO)).replace(b"Loaded", b"Lauded"),
    "a message for the engine": frame(Cancel("a")),
    "an endless frame": struct.pack("<I", 2**32 - 1) + b"x" * 100,
}


def pretend(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shell script be the engine's process; $4 is its end of the socket pair."""
    program = tmp_path / "engine"
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
async def test_garbage_from_the_engine_is_an_error_for_everybody_and_its_end(
    garbage: bytes, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loaded").write_bytes(frame(Loaded(INFO)))
    (tmp_path / "garbage").write_bytes(garbage)
    script = (
        f"cat {tmp_path}/loaded >&$4; head -c 1 <&$4 >/dev/null; cat {tmp_path}/garbage >&$4; exec sleep 60"
    )
    pretend(script, tmp_path, monkeypatch)
    client = await EngineClient.start(config_of(model))
    with client.submit(request_of("a")) as events:
        error = await error_of(events)
    assert isinstance(error, EngineUnavailableError)
    assert "cannot be read" in str(error)
    assert not client.alive
    await client.shutdown(0.0)
    assert client._process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("script", "how"), [("exit 3", "exit code 3"), ("kill -SEGV $$", "signal 11")])
async def test_an_engine_that_ends_without_a_word_is_told_by_how_it_ended(
    script: str, how: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(script, tmp_path, monkeypatch)
    with pytest.raises(EngineUnavailableError, match=how):
        await EngineClient.start(config_of(model))


def worker(model: Path) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The real worker with nobody but this test at the other end."""
    ours, theirs = socket.socketpair()
    options = json.dumps({"model": str(model), "kv_cache_memory": 8 << 20, "threads": 1})
    with theirs:
        started = subprocess.Popen(
            [sys.executable, "-P", "-m", "penstock.engine.worker", str(theirs.fileno()), options],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.DEVNULL,
        )
    ours.settimeout(60)
    return started, ours


def messages_until_the_end(connection: socket.socket) -> list[FromEngine]:
    reader, found = FrameReader(), []
    try:
        while data := connection.recv(1 << 16):
            found += [msgspec.msgpack.decode(body, type=FromEngine) for body in reader.feed(data)]
    except ConnectionResetError:  # it left without reading everything
        pass
    return found


def test_garbage_to_the_engine_ends_it_with_a_reason(model: Path) -> None:
    started, connection = worker(model)
    with started, connection:
        connection.sendall(frame(submit(endless("a"))) + GARBAGE["no message"])
        last = messages_until_the_end(connection)[-1]
        assert isinstance(last, Failed)
        assert last.kind == "EngineUnavailableError"
        assert "ValidationError" in last.message
        assert started.wait(20) == 1


def test_half_a_message_and_a_closed_socket_end_the_engine_quietly(model: Path) -> None:
    started, connection = worker(model)
    with started:
        with connection:
            assert connection.recv(1)
            connection.sendall(frame(Cancel("a"))[:-1])
        assert started.wait(20) == 0


def test_frames_arrive_whole_however_they_are_cut() -> None:
    bodies = [b"", b"a", b"b" * 70_000]
    data = b"".join(struct.pack("<I", len(body)) + body for body in bodies)
    for size in (1, 3, 4, 5, 1000, len(data)):
        reader = FrameReader()
        found = []
        for at in range(0, len(data), size):
            found += reader.feed(data[at : at + size])
        assert found == bodies


async def test_a_client_that_is_gone_leaves_no_task_behind(model: Path) -> None:
    client = await EngineClient.start(config_of(model))
    await client.shutdown(5.0)
    del client
    gc.collect()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
