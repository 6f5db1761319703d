"""The console of a running server: what it shows, who may see it, and what leaving or stopping does."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.config import ConsoleConfig, GatewayConfig
from penstock.gateway.accounts import Accounts, KeyRing
from penstock.gateway.accounts.keys import ANYBODY
from penstock.gateway.call import Call
from penstock.gateway.console import Console
from penstock.gateway.console.routes import RECENT_IN_EVENTS, console_events
from penstock.gateway.discovery import SharedRegistry
from penstock.gateway.drains import Drains
from penstock.gateway.state import Gateway
from penstock.observe.metrics import Metrics
from penstock.observe.record import RequestRecord
from tests.gateway.console.watching import serving, state, stream
from tests.gateway.door import Door, behind, id_of, save_tiny_chat
from tests.server import poll
from tests.servers.gated import OpenAIServer
from tests.servers.http import in_a_thread

PRICE = {"input": 1, "output": 2}
HTML = {"Accept": "text/html,application/xhtml+xml"}


@pytest.fixture(scope="module")
def door(upstream: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    config = {
        "models": {"chat": behind(upstream.url, price=PRICE)},
        "tenants": {"acme": {"monthly_budget": 50}},
    }
    with serving(tmp_path_factory.mktemp("console"), config) as made:
        yield made


def test_what_was_asked_is_seen_in_traffic_recent_requests_and_history(door: Door) -> None:
    replies = [door.ask("chat") for _ in range(5)]
    assert {reply.status for reply in replies} == {200}
    assert door.ask("nothing").status == 404
    seen: dict[str, Any] = {}

    def shown() -> bool:
        seen.update(state(door))
        return sum(point["requests"] for point in seen["history"]) >= 6

    poll(shown)
    [model] = seen["models"]
    used = [reply.json()["usage"] for reply in replies]
    window = seen["window"]
    assert model["traffic"]["requests"] * window == pytest.approx(5)
    assert model["traffic"]["output_tokens"] * window == pytest.approx(
        sum(u["completion_tokens"] for u in used)
    )
    assert model["traffic"]["input_tokens"] * window == pytest.approx(sum(u["prompt_tokens"] for u in used))
    assert model["traffic"]["e2e"]["count"] == 5
    assert 0 < model["traffic"]["e2e"]["p50"] <= model["traffic"]["e2e"]["p99"]
    assert seen["traffic"]["requests"] * window == pytest.approx(6)
    ok = [each for each in seen["recent"] if each["outcome"] == "ok"]
    assert [each["id"] for each in ok] == [reply.headers["x-request-id"] for reply in reversed(replies)]
    assert {each["outcome"] for each in seen["recent"]} == {"ok", "rejected"}
    assert all(abs(each["at"] - seen["at"]) < 60 for each in seen["recent"])
    assert {"admission", "attempt"} <= {phase["name"] for phase in ok[0]["phases"]}
    assert model["dollars_per_million"] > 0
    poll(lambda: {each["name"]: each["state"] for each in state(door)["objectives"]}["errors"] == "ok")
    assert seen["uptime"] > 0
    assert seen["processes"] == 1


def test_the_month_of_the_ledger_and_budgets_are_shown_for_tenants(door: Door) -> None:
    door.ask("chat")

    def spent() -> bool:
        tenants = {each["name"]: each for each in state(door)["tenants"]}
        return "default" in tenants and tenants["default"]["dollars"] > 0 and tenants["acme"]["budget"] == 50

    poll(spent)


def test_browsers_get_the_page_and_programs_the_index(door: Door) -> None:
    page = door.request("GET", "/", headers=HTML)
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert b"<html" in page.body
    index = door.get("/")
    assert index.json()["documentation"] == "/openapi.json"
    assert "/console/state" in index.json()["paths"]
    assert index.json()["paths"].count("/admin/backends") == 1
    assert (page.headers["vary"], index.headers["vary"]) == ("accept", "accept")


@pytest.mark.parametrize(
    "name", ["nothing.js", "__init__.py", "..%2f__init__.py", "%2e%2e/record.py", "a/b.js"]
)
def test_only_the_pages_files_are_given_out(door: Door, name: str) -> None:
    reply = door.get(f"/console/{name}")
    assert reply.status == 404
    assert reply.error["code"] == "unknown_url"


def test_events_bring_the_state_each_second(door: Door) -> None:
    with stream(door) as arriving:
        first = next(arriving)
        second = next(arriving)
    assert second["at"] - first["at"] > 0.5
    assert second["models"][0]["name"] == "chat"


def test_a_closed_tab_is_forgotten_without_a_word(door: Door) -> None:
    before = door.log()
    for _ in range(3):
        with stream(door) as arriving:
            next(arriving)
    for _ in range(3):  # one that only says that it has nothing to say any more, as browsers do
        with socket.create_connection((door.host, door.port)) as connection:
            connection.sendall(b"GET /console/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(100)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    poll(lambda: door.metric("penstock_http_requests_total", route="/console/events", status="499") >= 6)
    assert door.log()[len(before) :] == ""


def test_there_is_an_end_to_how_many_may_look(door: Door) -> None:
    connections = []
    try:
        for _ in range(100):
            connection = http.client.HTTPConnection(door.host, door.port, timeout=30)
            connections.append(connection)
            connection.request("GET", "/console/events")
            assert connection.getresponse().status == 200
        refused = door.get("/console/events")
        assert refused.status == 503
        assert refused.error["code"] == "too_many_consoles"
        assert door.ask("chat").status == 200
    finally:
        for connection in connections:
            connection.close()
    poll(lambda: _opens(door))


def _opens(door: Door) -> bool:
    with closing(http.client.HTTPConnection(door.host, door.port, timeout=30)) as connection:
        connection.request("GET", "/console/events")
        return connection.getresponse().status == 200


@pytest.mark.parametrize(
    "host",
    [
        "rebound.example",
        "rebound.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "[::1].evil",
    ],
)
def test_a_page_whose_name_leads_here_sees_nothing_where_there_are_no_keys(door: Door, host: str) -> None:
    for path in ("/console/state", "/console/events", "/admin/backends"):
        assert door.request("GET", path, headers={"Host": host}).status == 403, path
    body = {"model": "chat", "replica": "x"}
    assert door.request("POST", "/admin/backends/drain", body, {"Host": host}).status == 403


def test_another_sites_page_sees_nothing_where_there_are_no_keys(door: Door) -> None:
    here, other = f"http://{door.host}:{door.port}", f"http://{door.host}:{door.port + 1}"
    for path in ("/console/state", "/console/events"):
        for foreign in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},  # another port of this machine
            {"Origin": "https://evil.example"},
            {"Origin": other},
            {"Origin": "null"},
        ):
            assert door.request("GET", path, headers=foreign).status == 403, foreign
        for own in ({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": here}):
            assert door.request("HEAD", path, headers=own).status == 200, own
    body = {"model": "chat", "replica": "x"}
    assert door.request("POST", "/admin/backends/drain", body, {"Origin": other}).status == 403
    assert door.request("POST", "/admin/backends/drain", body, {"Origin": here}).status == 404


@pytest.mark.parametrize(
    "header", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"]
)
def test_what_a_proxy_passes_on_needs_a_key(door: Door, header: str) -> None:
    """A proxy on this machine calls from it, and often by its address; those that it speaks for do not."""
    for path in ("/console/state", "/console/events", "/admin/backends"):
        refused = door.request("GET", path, headers={header: "203.0.113.9"})
        assert refused.status == 403
        assert "not through a proxy" in refused.error["message"]
    body = {"model": "chat", "replica": "x"}
    assert door.request("POST", "/admin/backends/drain", body, {header: "203.0.113.9"}).status == 403


@pytest.mark.parametrize(
    "host", ["localhost:1234", "LOCALHOST", "127.0.0.1", "[::1]:80", "[::1]", "0.0.0.0:8000", ""]
)
def test_names_of_this_machine_may_look(door: Door, host: str) -> None:
    assert door.request("GET", "/console/state", headers={"Host": host}).status == 200


def test_where_there_are_keys_only_administrators_look(upstream: OpenAIServer, tmp_path: Path) -> None:
    config = {"models": {"chat": behind(upstream.url)}}
    with serving(tmp_path, config) as door:
        plain, admin = door.key("acme"), door.key("ops", "--admin")
        poll(lambda: door.get("/console/state").status == 401)
        for path in ("/console/state", "/console/events", "/console/reports/a.html"):
            assert door.get(path).status == 401
            assert door.request("GET", path, headers=plain).status == 403
        assert (
            door.request("GET", "/console/state", headers={"Authorization": "Bearer nonsense"}).status == 401
        )
        # A name is no matter once there is a key: whoever rebinds one has none.
        assert state(door, Host="console.example", **admin)["models"][0]["name"] == "chat"
        with stream(door, **admin) as arriving:
            assert next(arriving)["version"]
        assert door.request("GET", "/", headers=HTML).status == 200
        # A key that is revoked does not go on looking.
        with stream(door, **admin) as arriving:
            next(arriving)
            door.command("keys", "revoke", id_of(admin))
            poll(lambda: door.request("GET", "/console/state", headers=admin).status == 401)
            assert len(list(arriving)) < 10
        body = {"model": "chat", "replica": "upstream"}
        assert door.post("/admin/backends/drain", body).status == 401
        assert door.post("/admin/backends/drain", body, plain).status == 403


def test_a_stream_that_was_opened_without_keys_ends_when_there_are_some(
    upstream: OpenAIServer, tmp_path: Path
) -> None:
    with serving(tmp_path, {"models": {"chat": behind(upstream.url)}}) as door:
        with stream(door) as arriving:
            next(arriving)
            door.key("acme")
            assert len(list(arriving)) < 10
        assert door.get("/console/events").status == 401


def test_what_is_sent_each_second_has_the_latest_requests_alone(door: Door) -> None:
    latest = [door.ask("chat").headers["x-request-id"] for _ in range(RECENT_IN_EVENTS + 5)][::-1]
    with stream(door) as arriving:
        assert [each["id"] for each in next(arriving)["recent"]] == latest[:RECENT_IN_EVENTS]
    assert [each["id"] for each in state(door)["recent"]][: len(latest)] == latest


def test_a_console_that_is_off_is_not_there(upstream: OpenAIServer, tmp_path: Path) -> None:
    config = {"models": {"chat": behind(upstream.url)}, "console": {"enabled": False}}
    with serving(tmp_path, config) as door:
        assert door.request("GET", "/", headers=HTML).json()["name"] == "penstock"
        assert door.get("/console/state").error["code"] == "console_off"
        assert door.get("/console/index.html").status == 404
        # It is a matter of configuration: a reload turns it on.
        door.reload({"models": {"chat": behind(upstream.url)}})
        poll(lambda: door.get("/console/state").status == 200)


def test_open_streams_do_not_hold_up_the_end(upstream: OpenAIServer, tmp_path: Path) -> None:
    config = {"models": {"chat": behind(upstream.url)}, "drain_seconds": 3600}
    with serving(tmp_path, config) as door, stream(door) as arriving:
        next(arriving)
        door.signal(signal.SIGTERM)
        rest = list(arriving)
        assert all(json.dumps(each) for each in rest)
        assert door.wait() == 0
        assert "Traceback" not in door.log()


def test_reports_are_listed_and_shown_as_they_are_and_nothing_else_is(door: Door) -> None:
    folder = door.state / "reports"
    folder.mkdir(exist_ok=True)
    (folder / "one.html").write_text("<!DOCTYPE html><title>A &amp; B</title><p>figures")
    (folder / "secret.txt").write_text("no page")
    (door.state / "outside.html").write_text("not in the folder")
    (folder / "link.html").symlink_to(door.state / "outside.html")
    os.mkfifo(folder / "pipe.html")  # nobody writes into it

    def listed() -> bool:
        return any(each["name"] == "one.html" for each in state(door)["reports"])

    poll(listed)
    titles = {each["name"]: each["title"] for each in state(door)["reports"]}
    assert titles["one.html"] == "A & B"
    assert not {"link.html", "pipe.html", "secret.txt"} & set(titles)
    reply = door.get("/console/reports/one.html")
    assert b"figures" in reply.body
    assert "sandbox" in reply.headers["content-security-policy"]
    for name in (
        "secret.txt",
        "none.html",
        "..%2foutside.html",
        "link.html",
        "pipe.html",
        ".html",
        "%00.html",
    ):
        assert door.get(f"/console/reports/{name}").status == 404, name


# ---------------------------------------------------------------- what is old, and what is wrong


def test_a_new_start_shows_the_months_books_and_nothing_old_as_new(
    upstream: OpenAIServer, tmp_path: Path
) -> None:
    config = {"models": {"chat": behind(upstream.url, price=PRICE)}}
    with serving(tmp_path, config) as door:
        for _ in range(3):
            assert door.ask("chat").status == 200
        door.billed("default", "chat", requests=3)
    with serving(tmp_path, config) as door:
        now = state(door)
        [tenant] = [each for each in now["tenants"] if each["name"] == "default"]
        assert tenant["requests"] == 3
        assert tenant["running"] == 0
        assert now["traffic"]["requests"] == 0
        assert now["traffic"]["ttft"] == {"count": 0, "p50": None, "p95": None, "p99": None}
        assert now["recent"] == []
        assert sum(point["requests"] for point in now["history"]) == 0
        assert {each["state"] for each in now["objectives"]} == {"unknown"}
        assert now["uptime"] < 60


def test_a_server_whose_requests_fail_burns_its_budget_and_says_so(tmp_path: Path) -> None:
    with in_a_thread(OpenAIServer()) as upstream:
        config = {"models": {"chat": behind(upstream.url)}, "health": {"error_requests": 1000}}
        with serving(tmp_path, config) as door:
            assert state(door)["alerts"] == []
            upstream.broken = True
            assert {door.ask("chat").status for _ in range(8)} == {502}

            def firing() -> bool:
                return "PenstockErrorsBurn1h" in {alert["name"] for alert in state(door)["alerts"]}

            poll(firing)
            now = state(door)
            assert now["alerts"][0]["severity"] == "page"
            assert abs(now["alerts"][0]["since"] - now["at"]) < 60
            [errors] = [each for each in now["objectives"] if each["name"] == "errors"]
            assert errors["state"] == "page"
            assert errors["good"] < 0.5
            assert now["traffic"]["failed"] > 0


def test_alerts_are_known_when_a_process_does_not_answer(tmp_path: Path) -> None:
    with in_a_thread(OpenAIServer()) as upstream:
        config = {
            "models": {"chat": behind(upstream.url)},
            "health": {"error_requests": 1000},
            "workers": 2,
            "drain_seconds": 2,
        }
        with serving(tmp_path, config) as door:
            upstream.broken = True
            assert {door.ask("chat").status for _ in range(16)} == {502}

            def firing() -> bool:
                return "PenstockErrorsBurn1h" in {alert["name"] for alert in state(door)["alerts"]}

            poll(lambda: all(firing() for _ in range(10)))
            time.sleep(6)  # both have judged
            for process in door.engine_pids():
                os.kill(process, signal.SIGSTOP)
                try:
                    poll(lambda: state(door)["processes"] == 1)
                    assert firing()
                finally:
                    os.kill(process, signal.SIGCONT)
                poll(lambda: state(door)["processes"] == 2)


def looked_at(folder: Path) -> tuple[Gateway, Console]:
    """A gateway without models, in this process."""
    gateway = Gateway(
        GatewayConfig(),
        [],
        KeyRing(),
        Accounts.open(folder),
        Metrics(),
        SharedRegistry(folder),
        Drains(folder),
    )
    console = gateway.console = Console(gateway, folder)
    gateway.recorder.add(console)
    return gateway, console


async def test_a_console_that_is_turned_on_does_not_take_what_was_before_for_now(tmp_path: Path) -> None:
    gateway, console = looked_at(tmp_path)
    bad = gateway.metrics.families.judged.labels("chat", "errors", "bad")
    gateway.configure(GatewayConfig(console=ConsoleConfig(enabled=False)), [])
    looking = asyncio.create_task(console.run())
    bad.inc(1000)  # in the hours in which it is off
    gateway.configure(GatewayConfig(), [])
    bad.inc(1)
    await asyncio.sleep(2.5)
    looking.cancel()
    sums = console.part().sums
    assert sums[3600]["chat"].judged == {"errors": 1}


class Stalled(Call):
    """A client that takes nothing after the first event, and does not hang up either."""

    def __init__(self) -> None:
        async def nothing(*_: Any) -> Any: ...

        scope = {"type": "http", "method": "GET", "headers": [], "client": ("127.0.0.1", 1)}
        super().__init__(scope, nothing, nothing)
        self.written, self.hung_up = 0, False
        self.stalled = asyncio.Event()

    def when_left(self, act: Any) -> Any:
        return lambda: None

    async def write(self, data: bytes) -> None:
        self.written += 1
        if self.written > 1:
            self.stalled.set()
            await asyncio.Event().wait()

    def hang_up(self) -> None:
        self.hung_up = True


async def test_a_client_that_takes_nothing_does_not_hold_up_the_end(tmp_path: Path) -> None:
    gateway, console = looked_at(tmp_path)
    call = Stalled()
    looking = asyncio.create_task(console_events(gateway, call, ANYBODY))
    await asyncio.wait_for(call.stalled.wait(), 10.0)
    assert console.streams == 1
    gateway.abort_all("The server was stopped.")
    await asyncio.wait_for(looking, 1.0)
    assert call.hung_up
    assert console.streams == 0


async def test_a_folder_that_does_not_answer_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, console = looked_at(tmp_path)
    monkeypatch.setattr("penstock.gateway.console.console.FILE_SECONDS", 0.2)
    monkeypatch.setattr("penstock.gateway.console.console.FRESH_SECONDS", 0.0)
    over = threading.Event()
    monkeypatch.setattr(console._books.reports, "list", lambda: over.wait() and [])
    monkeypatch.setattr(console._books.reports, "read", lambda name: over.wait() and None)
    try:
        for _ in range(3):
            await asyncio.wait_for(console.snapshot(), 1.0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(console.report("a.html"), 1.0)
        assert [thread.daemon for thread in threading.enumerate() if thread.name == "books"] == [True, True]
    finally:
        over.set()


async def test_setting_the_clock_moves_all_times_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, console = looked_at(tmp_path)
    for number in range(3):
        record = RequestRecord(str(number), "createChatCompletion", time.monotonic(), time.time(), tenant="a")
        # The clock is set between two requests: a day back, then ten years on.
        monkeypatch.setattr("time.time", lambda day=number: 1e9 + (-86_400.0, 0.0, 3.2e8)[day])
        gateway.recorder.finish(record)
    before = await console.snapshot()
    assert [request.id for request in before.recent] == ["2", "1", "0"]
    assert all(0 <= before.at - request.at < 60 for request in before.recent)
    assert 0 <= before.uptime < 60
    monkeypatch.setattr("time.time", lambda: 5.0)
    monkeypatch.setattr("penstock.gateway.console.console.FRESH_SECONDS", 0.0)
    after = await console.snapshot()
    assert after.at == 5.0
    assert before.uptime <= after.uptime < 60
    assert all(0 <= after.at - request.at < 60 for request in after.recent)


def test_engines_tell_of_their_memory_and_their_prefix_cache(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tiny = save_tiny_chat(tmp_path_factory.mktemp("tiny"))
    with serving(tmp_path, {"models": {"tiny": {"backends": [{"engine": str(tiny)}]}}}) as door:
        again = [{"role": "user", "content": "again " * 40}]

        def cached() -> bool:
            """Between two looks of the server's at its engines."""
            assert door.ask("tiny", messages=again, max_tokens=4).status == 200
            [model] = state(door)["models"]
            [replica] = model["replicas"]
            return bool(replica["prefix_hits"]) and bool(model["prefix_hits"])

        poll(cached)
        [model] = state(door)["models"]
        assert 0.3 < model["prefix_hits"] < 1
        assert 0.3 < model["replicas"][0]["prefix_hits"] < 1
        assert model["replicas"][0]["kv_usage"] == 0
        recent = state(door)["recent"][0]
        assert {"queue", "prefill", "decode"} <= {phase["name"] for phase in recent["phases"]}
        assert recent["cached_tokens"] > 0
