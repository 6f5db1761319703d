"""What every store keeps, for how long, and what becomes of a request when it fails."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from penstock.config import CacheConfig
from penstock.errors import ConfigError
from penstock.gateway.cache.circuit import FAILURES, LONGEST_PAUSE, Circuit
from penstock.gateway.cache.entry import Counted, Entry
from penstock.gateway.cache.key import Asker
from penstock.gateway.cache.memory import MemoryStore
from penstock.gateway.cache.opening import open_cache, open_secret, open_store
from penstock.gateway.cache.redis import RedisStore
from penstock.gateway.cache.sqlite import FILE_NAME, SqliteStore
from penstock.gateway.cache.store import CacheStoreError, Shelf, Store
from tests.gateway.cache.conftest import RedisServer

ACME, OTHER = Asker("acme", "small", "m"), Asker("other", "small", "m")
TIMES = 60.0
MANY = 1 << 20


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def entry(text: str = "x") -> Entry:
    return Entry("createChatCompletion", text.encode(), Counted(1, 2), "up", 5.0, "chatcmpl-", ended=True)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        client: Any = Redis.from_url(server.url)
        await client.flushall()
        await client.aclose()
        made = RedisStore(server.url, timeout=5.0)
    else:
        config = CacheConfig(exact=True, store=request.param, max_entries=MANY, max_bytes=MANY)
        made = open_store(config, tmp_path)
    yield made
    await made.close()


@pytest.fixture
def shelf(store: Store, clock: Clock) -> Shelf:
    return Shelf(store, wall=clock, clock=clock)


async def put(shelf: Shelf, number: int, text: str = "x", asker: Asker = ACME) -> None:
    found = await shelf.get(key(number), asker)
    assert found.generations is not None
    assert await shelf.put(key(number), entry(text), TIMES, found.generations)


async def get(shelf: Shelf, number: int, asker: Asker = ACME) -> str | None:
    found = (await shelf.get(key(number), asker)).entry
    return None if found is None else found.body.decode()


async def test_what_was_put_comes_back_until_its_time_is_over(shelf: Shelf, clock: Clock) -> None:
    assert await get(shelf, 1) is None
    await put(shelf, 1, "a")
    await put(shelf, 1, "b")
    assert await get(shelf, 1) == "b"
    assert (await shelf.get(key(1), ACME)).entry == entry("b")
    clock.now += TIMES
    assert await get(shelf, 1) is None


@pytest.mark.parametrize(
    ("tenant", "model", "left"),
    [
        (None, None, []),
        ("acme", None, [2]),
        (None, "small", []),
        (None, "m", []),
        ("other", "m", [1]),
        ("nobody", None, [1, 2]),
        ("acme", "large", [1, 2]),
    ],
)
async def test_a_tenant_a_model_or_all_can_be_invalidated(
    shelf: Shelf, tenant: str | None, model: str | None, left: list[int]
) -> None:
    await put(shelf, 1)
    await put(shelf, 2, asker=OTHER)
    await shelf.invalidate(tenant, model)
    askers = {1: ACME, 2: OTHER}
    assert [number for number in askers if await get(shelf, number, askers[number])] == left


async def test_an_answer_that_was_asked_for_before_an_invalidation_is_worth_nothing(
    shelf: Shelf,
) -> None:
    before = (await shelf.get(key(1), ACME)).generations
    assert before is not None
    await shelf.invalidate("acme")
    await shelf.put(key(1), entry(), TIMES, before)
    assert await get(shelf, 1) is None


async def test_many_at_once_are_served(shelf: Shelf) -> None:
    await put(shelf, 1)
    assert await asyncio.gather(*(get(shelf, 1) for _ in range(300))) == ["x"] * 300
    assert shelf.errors == 0


async def test_an_entry_that_was_moved_cut_or_changed_is_removed_and_not_served(
    shelf: Shelf, store: Store
) -> None:
    await put(shelf, 1, "the answer")
    one, two = shelf._named(key(1)), shelf._named(key(2))
    value, _ = await store.read(one, [], 1000.0)
    assert value is not None
    for poison in (value, value[:-1], value[:20], b"", value.replace(b"answer", b"poison"), b"\x00" * 300):
        await store.write(two, poison, TIMES, 1000.0)
        assert await get(shelf, 2) is None
        assert (await store.read(two, [], 1000.0))[0] is None
    assert shelf.damaged == 6
    assert await get(shelf, 1) == "the answer"


async def test_an_entry_made_without_the_secret_is_not_served(store: Store, clock: Clock) -> None:
    mine = Shelf(store, wall=clock, clock=clock, secret=b"mine")
    theirs = Shelf(store, wall=clock, clock=clock, secret=b"theirs")
    await put(theirs, 1, "forged")
    assert await get(mine, 1) is None
    forged, _ = await store.read(theirs._named(key(1)), [], 1000.0)
    assert forged is not None
    await store.write(mine._named(key(1)), forged, TIMES, 1000.0)
    assert await get(mine, 1) is None
    assert mine.damaged == 1
    await put(mine, 1, "true")
    assert await get(mine, 1) == "true"
    assert await get(theirs, 1) == "forged"  # whoever has another secret is not in the way


async def test_what_is_invalidated_in_one_process_is_in_all_whose_caches_are_in_memory(
    tmp_path: Path, clock: Clock
) -> None:
    config = CacheConfig(exact=True)
    one, two = (Shelf(open_store(config, tmp_path, 2), wall=clock, clock=clock) for _ in range(2))
    for shelf in (one, two):
        await put(shelf, 1)
        await put(shelf, 2, asker=OTHER)
    before = (await two.get(key(3), ACME)).generations
    assert before is not None
    await one.invalidate("acme")
    await two.put(key(3), entry(), TIMES, before)
    for shelf in (one, two):
        assert [await get(shelf, 1), await get(shelf, 2, OTHER), await get(shelf, 3)] == [None, "x", None]
        await shelf.close()
    later = Shelf(open_store(config, tmp_path, 2), wall=clock, clock=clock)
    await put(later, 1)
    assert await get(later, 1) == "x"
    await later.close()
    assert await get(later, 1) is None  # whoever still has it goes without


def test_the_secret_is_made_once_for_a_folder_and_read_by_its_owner_alone(tmp_path: Path) -> None:
    config = CacheConfig(exact=True, store="sqlite")
    folder = tmp_path / "state"
    made = open_secret(config, folder)
    assert len(made) == 32
    assert open_secret(config, folder) == made
    assert (folder / "cache.secret").stat().st_mode & 0o777 == 0o600
    assert open_secret(config, tmp_path / "another") != made
    (folder / "cache.secret").write_bytes(made[:5])
    assert len(open_secret(config, folder)) == 32
    assert open_secret(CacheConfig(store="redis://a", secret="ours"), folder) == b"ours"


async def test_a_cache_that_is_opened_seals_with_the_secret_of_its_folder(tmp_path: Path) -> None:
    config = CacheConfig(exact=True, store="sqlite")
    cache = open_cache(config, tmp_path)
    assert cache is not None
    await put(cache.shelf, 1)
    await cache.close()
    again = open_cache(config, tmp_path)
    other = open_cache(CacheConfig(exact=True, store="sqlite", secret="another"), tmp_path)
    assert again is not None
    assert other is not None
    assert await get(again.shelf, 1) == "x"
    assert await get(other.shelf, 1) is None
    await again.close()
    await other.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_full_store_forgets_what_was_used_least_recently(
    kind: str, tmp_path: Path, clock: Clock
) -> None:
    store = MemoryStore(16, MANY) if kind == "memory" else SqliteStore(tmp_path, 16, MANY)
    shelf = Shelf(store, wall=clock, clock=clock)
    for number in range(16):
        await put(shelf, number)
        clock.now += 0.5
    clock.now += 70.0 if kind == "sqlite" else 0.0  # when an entry was used is known to the minute there
    ttl = 1000.0
    for number in range(16):
        await shelf.put(key(number), entry(), ttl, (await shelf.get(key(number), ACME)).generations or ())
        clock.now += 0.5
    clock.now += 70.0
    assert await get(shelf, 0) == "x"  # used: 1 is now the oldest
    clock.now += 0.5
    await put(shelf, 99)
    assert await get(shelf, 0) == "x"
    assert await get(shelf, 1) is None
    assert await get(shelf, 99) == "x"
    stats = await shelf.stats()
    assert stats.entries is not None
    assert stats.entries <= 16
    await shelf.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_store_is_bounded_in_bytes(kind: str, tmp_path: Path, clock: Clock) -> None:
    store = MemoryStore(1000, 50_000) if kind == "memory" else SqliteStore(tmp_path, 1000, 50_000)
    shelf = Shelf(store, wall=clock, clock=clock)
    for number in range(30):
        await put(shelf, number, "x" * 5000)
        clock.now += 1.0
        stats = await shelf.stats()
        assert stats.bytes is not None
        assert stats.bytes <= 50_000
    assert await get(shelf, 29) is not None
    await store.write(key(50), b"x" * 60_000, TIMES, clock.now)
    assert (await store.read(key(50), [], clock.now))[0] is None
    await shelf.close()


async def test_front_processes_share_a_file_and_a_restart_keeps_it(tmp_path: Path, clock: Clock) -> None:
    one = Shelf(SqliteStore(tmp_path, 100, MANY), wall=clock, clock=clock)
    two = Shelf(SqliteStore(tmp_path, 100, MANY), wall=clock, clock=clock)
    await put(one, 1, "shared")
    assert await get(two, 1) == "shared"
    await two.invalidate("acme")
    assert await get(one, 1) is None
    await put(one, 2, "kept")
    await one.close()
    await two.close()
    again = Shelf(SqliteStore(tmp_path, 100, MANY), wall=clock, clock=clock)
    assert await get(again, 2) == "kept"
    await again.close()
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0


async def test_a_damaged_file_is_begun_anew(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"this is no database at all" * 100)
    shelf = Shelf(SqliteStore(tmp_path, 100, MANY), wall=clock, clock=clock)
    await put(shelf, 1)
    assert await get(shelf, 1) == "x"
    await shelf.close()


async def test_a_file_that_another_process_keeps_locked_costs_an_entry_and_no_more(
    tmp_path: Path, clock: Clock
) -> None:
    shelf = Shelf(SqliteStore(tmp_path, 100, MANY), wall=clock, clock=clock)
    await put(shelf, 1)
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    generations = (await shelf.get(key(1), ACME)).generations
    assert generations is not None
    assert not await shelf.put(key(2), entry(), TIMES, generations)
    assert shelf.errors == 1
    assert await get(shelf, 1) == "x"
    other.close()
    await shelf.close()


class Broken:
    """A store whose server is away."""

    name = "broken"

    def __init__(self) -> None:
        self.asked = 0
        self.broken = True

    async def read(
        self, key: bytes, scopes: Sequence[bytes], now: float
    ) -> tuple[bytes | None, tuple[int, ...]]:
        self.asked += 1
        if self.broken:
            raise CacheStoreError("It is away.")
        return None, tuple(0 for _ in scopes)

    async def write(self, key: bytes, value: bytes, ttl: float, now: float) -> None: ...

    async def delete(self, key: bytes) -> None: ...

    async def bump(self, scope: bytes) -> None: ...

    async def stats(self, now: float) -> Any:
        raise CacheStoreError("It is away.")

    async def close(self) -> None: ...


async def test_a_store_that_fails_is_left_alone_and_tried_again_within_ten_seconds(clock: Clock) -> None:
    store = Broken()
    shelf = Shelf(store, wall=clock, clock=clock)
    for _ in range(100):
        assert (await shelf.get(key(1), ACME)).generations is None
    assert store.asked == FAILURES
    for _ in range(1000):  # 100 seconds
        clock.now += 0.1
        await shelf.get(key(1), ACME)
    assert store.asked <= FAILURES + 3 + 100 / LONGEST_PAUSE + 1
    store.broken = False
    clock.now += 10.0
    assert (await shelf.get(key(1), ACME)).generations is not None
    assert (await shelf.get(key(1), ACME)).generations is not None


def test_a_circuit_opens_after_failures_in_a_row_only() -> None:
    circuit = Circuit()
    for _ in range(10):
        assert not circuit.failed(0.0)
        circuit.succeeded()
    assert [circuit.failed(0.0) for _ in range(FAILURES)] == [False] * (FAILURES - 1) + [True]
    assert not any(circuit.failed(0.0) for _ in range(50))  # those that were on their way say nothing new
    assert not circuit.closed(0.5)
    assert circuit.closed(1.5)
    assert not circuit.closed(1.5)  # one at a time
    circuit.succeeded()
    assert circuit.closed(1.5)


async def test_a_redis_that_says_nothing_is_given_a_tenth_of_a_second(tmp_path: Path, clock: Clock) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(silent, tmp_path / "silent.sock")
    shelf = Shelf(RedisStore(f"unix://{tmp_path}/silent.sock"), wall=clock, clock=clock)
    async with asyncio.timeout(30):
        assert (await shelf.get(key(1), ACME)).generations is None
    assert shelf.errors == 1
    await shelf.close()
    server.close()


def test_what_cannot_be_a_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be memory, sqlite or an address that begins with redis://"):
        open_store(CacheConfig(store="memcached"), tmp_path)
    with pytest.raises(ConfigError, match="no address of a Redis server"):
        open_store(CacheConfig(store="redis://host:port"), tmp_path)
    with pytest.raises(ConfigError, match="no state folder"):
        open_store(CacheConfig(store="sqlite"), None)
    assert open_cache(CacheConfig(), tmp_path) is None
