"""Where servers are: from files, names and servers' own announcements, as they change."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from penstock.config.sections import DiscoverConfig
from penstock.gateway.discovery import (
    Addresses,
    DnsSource,
    FileSource,
    SharedRegistry,
    Source,
    open_source,
)
from penstock.gateway.discovery import dns as dns_module

A, B, C = "http://10.0.0.1:8000", "http://10.0.0.2:8000", "https://c.example/v1"
SOON = 0.02  # seconds between two looks


async def following(watching: AsyncIterator[Addresses]) -> Addresses:
    """The next set; the limit only turns a hang into a failure."""
    async with asyncio.timeout(30.0):
        return await anext(watching)


async def until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    async with asyncio.timeout(30.0):
        while text not in caplog.text:  # noqa: ASYNC110 - logs tell nobody that they have grown
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    "text",
    [
        f"{A}\n{B}\n{C}\n",
        f"# ours\n\n  {A}/  # the first\r\n{B}\n{C}",
        json.dumps([A, B, C]),
        f"- {A}\n- {B}\n- {C}\n",
        f"\ufeff{A}\n{B}\n{C}\n{C}\n",
    ],
    ids=["lines", "remarks", "json", "yaml", "byte order mark"],
)
async def test_a_file_may_be_lines_json_or_yaml(text: str, tmp_path: Path) -> None:
    path = tmp_path / "servers"
    path.write_text(text, encoding="utf-8")
    assert await following(FileSource(path, SOON).watch()) == {A, B, C}


async def test_a_file_is_read_again_when_it_is_replaced_or_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "servers"
    path.write_text(A)
    watching = FileSource(path, SOON).watch()
    assert await following(watching) == {A}
    (tmp_path / "new").write_text(f"{A}\n{B}")
    (tmp_path / "new").rename(path)
    assert await following(watching) == {A, B}
    path.write_text(B)
    assert await following(watching) == {B}
    # The same servers in other words are no news, none at all is.
    path.write_text(f"- {B}")
    path.write_text("[]")
    assert await following(watching) == frozenset()


async def test_a_file_of_the_same_length_and_time_but_another_inode_is_read(tmp_path: Path) -> None:
    path = tmp_path / "servers"
    path.write_text(A)
    os.utime(path, ns=(10**18, 10**18))
    watching = FileSource(path, SOON).watch()
    assert await following(watching) == {A}
    (tmp_path / "new").write_text(B)
    os.utime(tmp_path / "new", ns=(10**18, 10**18))
    (tmp_path / "new").rename(path)
    assert await following(watching) == {B}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty; write [] if there are no servers."),
        (b"# nothing yet\n", "is empty; write []"),
        (f"{A}\n10.0.0.2:8000\n".encode(), "line 2: '10.0.0.2:8000' has no scheme; write http://"),
        (
            b"http://user:secret@host/",
            "line 1: the address holds a name or password; give the key as api_key",
        ),
        (b"ftp://host/", "line 1: 'ftp://host/' must be http or https."),
        (b"- http://a\n- {b: c}\n", "must be a list of URLs."),
        (b'["http://a", ', "is neither JSON nor YAML (line 1)."),
        (b'["http://a", ""]', "entry 2: there is no address."),
        (b"\xff\xfe", "is not UTF-8 text."),
        (b"http://a\n" * 200_000, "is larger than 1048576 bytes."),
    ],
    ids=[
        "empty",
        "remarks only",
        "no scheme",
        "a password",
        "ftp",
        "a mapping",
        "half",
        "no text",
        "no UTF-8",
        "large",
    ],
)
async def test_bad_content_is_refused_with_a_sentence_and_the_old_kept(
    content: bytes, sentence: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "servers"
    path.write_text(A)
    watching = FileSource(path, SOON).watch()
    assert await following(watching) == {A}
    path.write_bytes(content)
    waiting = asyncio.ensure_future(following(watching))
    await until_logged(caplog, sentence)
    assert "the 1 known servers stay" in caplog.text
    assert "secret" not in caplog.text
    assert not waiting.done()
    path.write_text(B)
    assert await waiting == {B}
    assert "Discovery works again." in caplog.text


async def test_a_file_that_is_not_there_yet_is_waited_for_and_one_that_goes_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "servers"
    watching = FileSource(path, SOON).watch()
    waiting = asyncio.ensure_future(following(watching))
    await until_logged(
        caplog, "cannot be read: No such file or directory. Until then no server is known yet."
    )
    path.write_text(A)
    assert await waiting == {A}
    path.unlink()
    waiting = asyncio.ensure_future(following(watching))
    await until_logged(caplog, "the 1 known servers stay")
    for _ in range(5):
        await asyncio.sleep(SOON)
    assert caplog.text.count("the 1 known servers stay") == 1, "told once, not at every look"
    path.write_text(B)
    assert await waiting == {B}


# ---------------------------------------------------------------- names


async def test_a_name_stands_for_each_of_its_addresses() -> None:
    expected = {
        f"http://[{address[0]}]:8000" if family == socket.AF_INET6 else f"http://{address[0]}:8000"
        for family, *_, address in socket.getaddrinfo("localhost", 8000, type=socket.SOCK_STREAM)
    }
    assert await following(DnsSource("localhost:8000", SOON).watch()) == expected
    assert "http://127.0.0.1:8000" in expected


async def test_an_address_in_brackets_is_its_own_name() -> None:
    assert await following(DnsSource("[::1]:8000", SOON).watch()) == {"http://[::1]:8000"}


class Names:
    """A name server in the test's hand."""

    def __init__(self, *hosts: str) -> None:
        self.hosts: list[str] = list(hosts)
        self.failure: OSError | None = None
        self.asked = 0

    def __call__(self, name: str, port: int) -> Iterable[tuple[str, int]]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return [(host, port) for host in self.hosts]


async def test_addresses_that_come_and_go_are_followed_and_their_order_is_no_news() -> None:
    names = Names("10.0.0.1", "10.0.0.2")
    watching = DnsSource("pool:8000", SOON, names).watch()
    assert await following(watching) == {A, B}
    waiting = asyncio.ensure_future(following(watching))
    names.hosts.reverse()
    asked = names.asked
    while names.asked < asked + 3:  # noqa: ASYNC110 - counted by another thread
        await asyncio.sleep(0.01)
    assert not waiting.done()
    names.hosts = ["10.0.0.2", "fd00::1"]
    assert await waiting == {B, "http://[fd00::1]:8000"}


@pytest.mark.parametrize(
    "failure", [socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), None]
)
async def test_the_last_good_answer_outlasts_a_name_server_that_fails(
    failure: OSError | None, caplog: pytest.LogCaptureFixture
) -> None:
    names = Names("10.0.0.1")
    watching = DnsSource("pool:8000", SOON, names).watch()
    assert await following(watching) == {A}
    names.hosts, names.failure = [], failure
    waiting = asyncio.ensure_future(following(watching))
    await until_logged(caplog, "DNS knows no address of 'pool'")
    assert not waiting.done()
    names.hosts, names.failure = ["10.0.0.2"], None
    assert await waiting == {B}


async def test_a_name_server_that_does_not_answer_is_asked_once_at_a_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns_module, "RESOLVE_WITHIN", 0.05)
    answers, asked = threading.Event(), []

    def slow(name: str, port: int) -> list[tuple[str, int]]:
        asked.append(name)
        answers.wait(10.0)
        return [("10.0.0.1", port)]

    waiting = asyncio.ensure_future(following(DnsSource("pool:8000", SOON, slow).watch()))
    await until_logged(caplog, "DNS has not answered for 'pool'.")
    await asyncio.sleep(0.2)
    assert asked == ["pool"]
    answers.set()
    assert await waiting == {A}


async def test_a_lookup_that_fails_when_nobody_waits_for_it_any_more_is_nothing_to_report() -> None:
    asked, failing = threading.Event(), threading.Event()

    def slow(name: str, port: int) -> Iterable[tuple[str, int]]:
        asked.set()
        failing.wait(10.0)
        raise OSError("nobody knows it")

    reported: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    waiting = asyncio.ensure_future(following(DnsSource("pool:8000", SOON, slow).watch()))
    await asyncio.to_thread(asked.wait, 10.0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    failing.set()
    while any(thread.name == "resolve" for thread in threading.enumerate()):  # noqa: ASYNC110 - threads tell nobody
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)  # what the thread left to the loop
    del waiting
    gc.collect()
    assert not reported


async def test_a_name_that_cannot_be_one_is_told_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    waiting = asyncio.ensure_future(following(DnsSource(f"{'x' * 70}.example:80", SOON).watch()))
    await until_logged(caplog, "DNS knows no address of")
    waiting.cancel()


# ---------------------------------------------------------------- announcements


async def test_whichever_process_a_server_registers_with_all_of_them_know_it(tmp_path: Path) -> None:
    one, other = SharedRegistry(tmp_path), SharedRegistry(tmp_path)
    watching = other.watch("chat")
    assert await following(watching) == frozenset()
    assert await one.register("chat", A, 60.0)
    assert await following(watching) == {A}
    assert not await other.register("chat", A, 60.0), "that only renews it"
    assert await other.register("other", B, 60.0)
    assert 30.0 < (await one.expiries("chat"))[A] <= 60.0
    assert await one.deregister("chat", A)
    assert await following(watching) == frozenset()
    assert not await one.deregister("chat", A)


async def test_a_server_that_does_not_renew_is_forgotten(tmp_path: Path) -> None:
    registry = SharedRegistry(tmp_path)
    watching = registry.watch("chat")
    await following(watching)
    seen = asyncio.ensure_future(following(watching))
    while not seen.done():  # it renews until it is known
        await registry.register("chat", A, 1.0)
        await asyncio.sleep(0.1)
    assert await seen == {A}
    assert await following(watching) == frozenset()
    assert await registry.expiries("chat") == {}


async def test_servers_that_register_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    urls = [f"http://10.0.0.{at}:8000" for at in range(40)]
    processes = [SharedRegistry(tmp_path) for _ in range(4)]
    await asyncio.gather(*(processes[at % 4].register("chat", url, 60.0) for at, url in enumerate(urls)))
    assert set(await processes[0].expiries("chat")) == set(urls)


# ---------------------------------------------------------------- what the configuration says


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (DiscoverConfig(dns="pool:8000"), "DnsSource"),
        (DiscoverConfig(dns="srv:_http._tcp.pool"), "DnsSource"),
        (DiscoverConfig(file="~/servers"), "FileSource"),
        (DiscoverConfig(register=True), "RegisteredSource"),
    ],
    ids=str,
)
def test_the_configuration_names_the_source(config: DiscoverConfig, kind: str, tmp_path: Path) -> None:
    source: Source = open_source(config, SharedRegistry(tmp_path), "chat")
    assert type(source).__name__ == kind


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock.discovery")
