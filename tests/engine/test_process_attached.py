"""One engine, several front processes: those that attach beside the owner."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
import uvloop

from penstock.engine.messages import Drain, frame, submit
from penstock.engine.peers import MARK
from penstock.engine.process import EngineClient
from penstock.errors import (
    ConfigError,
    ContextLengthError,
    EngineUnavailableError,
    InvalidRequestError,
    QueueFullError,
)
from tests.engine.engines import (
    CONTEXT,
    answers_to,
    config_of,
    endless,
    request_of,
    save_model,
    tokens_of,
    until,
    until_idle,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    # pytest's own folders can have longer names than a socket may.
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        yield Path(folder) / "a.sock"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(model: Path, path: Path) -> AsyncIterator[EngineClient]:
    owner = await EngineClient.start(config_of(model), listen=path)
    yield owner
    await owner.shutdown(5.0)


@pytest_asyncio.fixture(loop_scope="module")
async def owner(engine: EngineClient) -> AsyncIterator[EngineClient]:
    """Every test must leave the engine alive and empty."""
    yield engine
    assert engine.alive
    await until_idle(engine)


@pytest_asyncio.fixture(loop_scope="module")
async def attached(owner: EngineClient, path: Path) -> AsyncIterator[EngineClient]:
    client = await EngineClient.attach(path)
    yield client
    await client.shutdown()


async def test_it_learns_what_the_owner_knows(owner: EngineClient, attached: EngineClient) -> None:
    assert attached.info == owner.info
    assert attached.pid == owner.pid
    assert attached.alive
    await until(lambda: attached.stats.blocks_total == owner.info.num_blocks)


async def test_two_clients_with_the_same_request_ids_get_each_their_own_answers(
    owner: EngineClient, attached: EngineClient, path: Path
) -> None:
    second = await EngineClient.attach(path)
    clients = [owner, attached, second]
    prompts = [[1, 2, 3], [9, 9], [50] * 20]
    alone = [await tokens_of(owner, request_of("x", p, max_tokens=40)) for p in prompts]
    assert len({tuple(tokens) for tokens in alone}) == 3
    together = await asyncio.gather(
        *(
            tokens_of(client, request_of("a", p, max_tokens=40))
            for client, p in zip(clients, prompts, strict=True)
        )
    )
    assert together == alone
    await second.shutdown()


async def test_nobody_can_cancel_anothers_request(owner: EngineClient, attached: EngineClient) -> None:
    with owner.submit(request_of("a", max_tokens=200)) as theirs, attached.submit(endless("a", n=2)) as ours:
        await anext(ours)
        attached.cancel("a")
        assert [e.finish_reason async for e in ours if e.finish_reason] == ["cancelled", "cancelled"]
        assert sum([len(event.token_ids) async for event in theirs]) == 200


async def test_errors_come_to_whoever_asked(owner: EngineClient, attached: EngineClient) -> None:
    good = asyncio.create_task(tokens_of(owner, request_of("x", max_tokens=50)))
    with pytest.raises(ContextLengthError):
        await answers_to(attached, request_of("x", [1] * CONTEXT))
    with pytest.raises(InvalidRequestError, match="vocabulary"):
        await answers_to(attached, request_of("x", [999]))
    assert len(await good) == 50


async def test_the_engines_queue_bounds_all_of_them_together(
    owner: EngineClient, attached: EngineClient
) -> None:
    streams = [owner.submit(endless(str(at), n=2)) for at in range(4)]
    await until(lambda: owner.stats.running + owner.stats.waiting == 8)
    with pytest.raises(QueueFullError):
        await answers_to(attached, request_of("late"))
    for stream in streams:
        stream.close()
    await until_idle(owner)
    assert len(await tokens_of(attached, request_of("late"))) == 8


async def test_one_that_has_nothing_running_still_gets_the_heartbeat(
    owner: EngineClient, attached: EngineClient
) -> None:
    with owner.submit(endless("a")) as events:
        await anext(events)
        beat = attached.last_beat
        await until(lambda: attached.last_beat > beat + 1.5)
        assert attached.stats.running == 1


async def test_letting_go_cancels_its_own_requests_and_nobody_elses(owner: EngineClient, path: Path) -> None:
    with owner.submit(request_of("a", max_tokens=300)) as events:
        client = await EngineClient.attach(path)
        for name in ("a", "b"):
            await anext(client.submit(endless(name)))
        await until(lambda: owner.stats.running == 3)
        await client.shutdown()
        assert not client.alive
        with pytest.raises(EngineUnavailableError):
            client.submit(request_of("c"))
        await until(lambda: owner.stats.running == 1)
        assert sum([len(event.token_ids) async for event in events]) == 300


WORKER = """
    import asyncio, sys
    from pathlib import Path
    from penstock.engine.process import EngineClient
    from penstock.engine.request import Request, SamplingParams

    async def main() -> None:
        client = await EngineClient.attach(Path(sys.argv[1]))
        params = SamplingParams(ignore_eos=True, n=2)
        with client.submit(Request(id="a", prompt=[1], params=params)) as events:
            await anext(events)
            print("running", flush=True)
            async for _ in events:
                pass

    asyncio.run(main())
"""


def worker_with_a_stream(path: Path) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WORKER), str(path)], stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"running\n"
    return worker


async def test_a_process_that_dies_in_mid_stream_frees_its_blocks(owner: EngineClient, path: Path) -> None:
    with await asyncio.to_thread(worker_with_a_stream, path) as worker:
        await until(lambda: owner.stats.running == 2)
        assert owner.stats.kv_usage > 0
        worker.kill()
        await until_idle(owner)


async def test_one_that_does_not_read_holds_nobody_up(owner: EngineClient, path: Path) -> None:
    with await asyncio.to_thread(worker_with_a_stream, path) as worker:
        psutil.Process(worker.pid).suspend()
        assert len(await tokens_of(owner, request_of("a", max_tokens=300))) == 300
        worker.kill()


async def test_garbage_from_one_ends_its_connection_and_nothing_else(
    owner: EngineClient, attached: EngineClient, path: Path
) -> None:
    for garbage in (b"\xff" * 100, b"\x03\0\0\0\xc1\xc1\xc1", frame(Drain(0.0))):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(frame(submit(endless("a"))) + garbage)
            await asyncio.to_thread(_read_to_the_end, connection)
    await until_idle(owner)
    assert len(await tokens_of(attached, request_of("a"))) == 8


def _read_to_the_end(connection: socket.socket) -> None:
    connection.settimeout(20)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass


async def test_the_owners_requests_cannot_pose_as_anothers(
    owner: EngineClient, attached: EngineClient
) -> None:
    with pytest.raises(InvalidRequestError, match="zero character"):
        await answers_to(owner, request_of(f"{MARK}1{MARK}a"))
    assert len(await tokens_of(attached, request_of(f"{MARK}1{MARK}a"))) == 8


async def test_a_storm_of_clients_leaves_nothing_behind(owner: EngineClient, path: Path) -> None:
    open_files = psutil.Process(owner.pid).num_fds()

    async def visit() -> None:
        for turn in range(4):
            client = await EngineClient.attach(path)
            try:
                first, *_ = [client.submit(endless(str(name))) for name in range(1 + turn % 2)]
                await anext(first)
            except QueueFullError:
                pass
            await client.shutdown()

    await asyncio.gather(*(visit() for _ in range(4)))
    await until_idle(owner)
    await until(lambda: psutil.Process(owner.pid).num_fds() <= open_files)


async def test_only_this_user_can_reach_the_socket(owner: EngineClient, path: Path, model: Path) -> None:
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with pytest.raises(ConfigError, match=r"make it private \(mode 700\)"):
            await EngineClient.start(config_of(model), listen=Path(folder) / "a.sock")
        with pytest.raises(ConfigError, match="too long"):
            await EngineClient.start(config_of(model), listen=Path(folder) / ("a" * 100))


async def test_it_attaches_on_the_servers_event_loop_too(owner: EngineClient, path: Path) -> None:
    async def main() -> list[int]:
        client = await EngineClient.attach(path)
        tokens = await tokens_of(client, request_of("a"))
        await client.shutdown()
        return tokens

    found = await asyncio.to_thread(lambda: uvloop.run(main()))
    assert found == await tokens_of(owner, request_of("a"))


async def test_where_no_engine_is_attaching_says_so(path: Path) -> None:
    with pytest.raises(EngineUnavailableError, match=r"cannot be reached \(No such file"):
        await EngineClient.attach(path.with_name("nothing"))


# ---------------------------------------------------------------- engines that end


async def ask_on(client: EngineClient) -> None:
    """Until the engine refuses; it may not have heard at once that it is to end."""
    while True:
        await tokens_of(client, request_of("late"))


async def test_draining_finishes_what_others_have_running_and_refuses_what_is_new(model: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sock"
        owner = await EngineClient.start(config_of(model), listen=path)
        client = await EngineClient.attach(path)
        with client.submit(request_of("a", max_tokens=1500)) as events:
            await anext(events)
            draining = asyncio.create_task(owner.shutdown(60.0))
            with pytest.raises(EngineUnavailableError, match="shutting down"):
                await ask_on(client)
            assert sum([len(event.token_ids) async for event in events]) == 1499
        await draining
        assert "has closed" in str(await client.failed())
        with pytest.raises(EngineUnavailableError, match="No such file"):
            await EngineClient.attach(path)
        await client.shutdown()


async def test_a_killed_engine_is_told_to_everybody_and_one_in_its_place_is_found_by_the_same_path(
    model: Path,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sock"
        owner = await EngineClient.start(config_of(model), listen=path)
        client = await EngineClient.attach(path)
        with client.submit(endless("a")) as ours, client.submit(endless("b")):
            await anext(ours)
            os.kill(client.pid, signal.SIGKILL)
            with pytest.raises(EngineUnavailableError):
                async for _ in ours:
                    pass
        assert client.lost == ("a", "b")
        assert "signal 9" in str(await owner.failed())
        with pytest.raises(EngineUnavailableError, match="cannot be reached"):
            await EngineClient.attach(path)
        for gone in (client, owner):
            await gone.shutdown()
        again = await EngineClient.start(config_of(model), listen=path)
        client = await EngineClient.attach(path)
        assert len(await tokens_of(client, request_of("a"))) == 8
        await again.kill()
        await client.shutdown()
