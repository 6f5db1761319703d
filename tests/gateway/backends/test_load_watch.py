"""Watching a server: what its health check, its silence and its metrics lead to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.gateway.backends import load_watch
from penstock.gateway.backends.relay import RelayBackend
from penstock.gateway.balance import Load
from tests.gateway.backends.asking import backend_of
from tests.gateway.upstream.raw import Peer, RawServer, plain

METRICS = b"vllm:num_requests_running 2\nvllm:num_requests_waiting 1\n"


@pytest.fixture(autouse=True)
def _quickly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_watch, "TICK_SECONDS", 0.01)
        patch.setattr(load_watch, "LOAD_SECONDS", 0.05)
        yield


class Paths:
    """A server whose answers can be changed while it runs."""

    def __init__(self, **answers: bytes) -> None:
        self.answers = {"/" + name: answer for name, answer in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            path = (await peer.asked()).line.split()[1]
            self.asked.append(path)
            answer = self.answers.get(path, plain(b"", status="404 Not Found"))
            if not answer:
                await peer.gone()
            await peer.send(answer)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 (what is watched is no event)
            await asyncio.sleep(0.005)


def state(backend: RelayBackend) -> str:
    return backend.health.state(time.monotonic())


async def test_a_server_is_healthy_once_its_health_check_says_so() -> None:
    paths = Paths(health=plain(b"", status="503 Service Unavailable"))
    async with RawServer(paths) as server:
        backend = backend_of(server.url, "llamacpp")
        await backend.start()
        await until(lambda: bool(paths.asked))
        assert state(backend) == "starting"
        paths.answers["/health"] = plain(b'{"status":"ok"}')
        await until(lambda: state(backend) == "healthy")
        await backend.close()


async def test_a_server_that_is_gone_is_dead() -> None:
    paths = Paths(health=plain(b""))
    async with RawServer(paths) as server:
        backend = backend_of(server.url, "vllm")
        await backend.start()
        await until(lambda: state(backend) == "healthy")
    backend.health.answered(False, time.monotonic())  # a request failed: doubt
    backend._origin.close()
    await until(lambda: state(backend) == "dead")
    assert backend.health.reason(time.monotonic()) == "it does not accept connections"
    await backend.close()


async def test_a_key_that_is_refused_is_told() -> None:
    paths = Paths(**{"v1/models": plain(b"", status="401 Unauthorized")})
    async with RawServer(paths) as server:
        backend = backend_of(server.url)
        await backend.start()
        await until(lambda: backend.health.reason(time.monotonic()) == "it does not accept the gateway's key")
        await backend.close()


async def test_a_server_without_the_path_is_not_what_was_configured() -> None:
    async with RawServer(Paths()) as server:
        backend = backend_of(server.url)
        await backend.start()
        await until(lambda: "404" in (backend.health.reason(time.monotonic()) or ""))
        assert state(backend) != "healthy"
        await backend.close()


async def test_the_load_is_read_again_and_again() -> None:
    paths = Paths(health=plain(b""), metrics=plain(METRICS))
    async with RawServer(paths) as server:
        backend = backend_of(server.url, "vllm", api_key="k")
        assert backend.load() is None
        await backend.start()
        await until(lambda: backend.load() == Load(2, 1))
        paths.answers["/metrics"] = plain(METRICS.replace(b"2", b"9"))
        await until(lambda: backend.load() == Load(9, 1))
        await backend.close()
    assert all(asked.headers["authorization"] == "Bearer k" for asked in server.requests)


async def test_the_second_source_is_asked_where_the_first_is_not_there() -> None:
    paths = Paths(health=plain(b""), slots=plain(b'[{"is_processing":true}]'))
    paths.answers["/metrics"] = plain(b"", status="501 Not Implemented")
    async with RawServer(paths) as server:
        backend = backend_of(server.url, "llamacpp")
        await backend.start()
        await until(lambda: backend.load() == Load(1, 0))
        await until(lambda: paths.asked.count("/slots") >= 3)
        await backend.close()
    assert paths.asked.count("/metrics") == 1


async def test_a_server_that_tells_no_load_is_not_asked_all_the_time() -> None:
    paths = Paths(health=plain(b""))
    async with RawServer(paths) as server:
        backend = backend_of(server.url, "tgi")
        await backend.start()
        await until(lambda: "/metrics" in paths.asked)
        await asyncio.sleep(0.3)
        await backend.close()
    assert paths.asked.count("/metrics") == 1
    assert backend.load() is None


async def test_metrics_that_are_refused_are_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(load_watch, "NO_LOAD_SECONDS", 0.0)
    paths = Paths(health=plain(b""), metrics=plain(b"", status="403 Forbidden"))
    async with RawServer(paths) as server:
        backend = backend_of(server.url, "vllm")
        await backend.start()
        await until(lambda: paths.asked.count("/metrics") >= 3)
        await backend.close()
    assert backend.load() is None
    [told] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert told.startswith(f"At {backend.name}: its load is not known, since its /metrics needs another key")


async def test_a_hosted_provider_is_neither_probed_nor_asked_for_its_load() -> None:
    paths = Paths()
    async with RawServer(paths) as server:
        backend = backend_of(server.url, "openai")
        await backend.start()
        await asyncio.sleep(0.1)
        assert state(backend) == "healthy"
        await backend.close()
    assert not paths.asked


async def test_closing_ends_the_watch_and_its_connections() -> None:
    paths = Paths(health=b"", metrics=b"")  # both hang
    async with RawServer(paths) as server:
        backend = backend_of(server.url, "vllm")
        await backend.start()
        await until(lambda: len(paths.asked) == 2)
        await backend.close()
        await asyncio.wait_for(server.hung_up.wait(), 30)
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]
    assert not any(name.startswith("Watch.") for name in names)
