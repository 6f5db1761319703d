"""`penstock top`: against a real server, in a small terminal, and against what is no Penstock."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from penstock.cli.app import app, run
from penstock.cli.top import Watched, _watch
from penstock.cli.top_view import view
from penstock.observe.snapshot import (
    AlertNow,
    Distribution,
    GpuNow,
    ModelNow,
    ObjectiveNow,
    ReplicaNow,
    RequestNow,
    RoutingNow,
    Snapshot,
    TenantNow,
    TierNow,
    Traffic,
)
from tests.gateway.door import Door, behind
from tests.server import poll
from tests.servers.gated import OpenAIServer
from tests.servers.http import LocalServer, Reply, Request, answer, in_a_thread

SPREAD = Distribution(count=9, p50=0.0123, p95=0.4, p99=12.5)
TRAFFIC = Traffic(
    requests=123.4, failed=0.5, input_tokens=12_345, output_tokens=6_789, ttft=SPREAD, tpot=SPREAD, e2e=SPREAD
)


def busy(name: str = "chat", **fields: Any) -> Snapshot:
    """Much of everything."""
    replicas = [
        ReplicaNow(name=f"{name}-{number}", state="unhealthy", reason="it did not answer " * 9, capacity=16)
        for number in range(9)
    ]
    request = RequestNow(
        id="r",
        arrived=0.0,
        at=time.time(),
        operation="createChatCompletion",
        model=name,
        served_by=name,
        tier="",
        tenant=name,
        service_class="standard",
        outcome="failed",
        status=502,
        code="bad_gateway",
        ms=1234.5,
        ttft_ms=None,
        prompt_tokens=100_000,
        cached_tokens=0,
        completion_tokens=20_000,
        dollars=0.1,
        phases=[],
        causes=["queued", "long prefill"],
    )
    model = ModelNow(
        name=name,
        traffic=TRAFFIC,
        waiting={"interactive": 0, "standard": 7, "batch": 0},
        kv_usage=0.5,
        replicas=replicas,
    )
    tier = TierNow(name=name, model=name, share=0.25, dollars=0.0001, quality=0.9, checked=10)
    content: dict[str, Any] = {
        "at": time.time(),
        "version": "1.2.3",
        "uptime": 90_000.0,
        "window": 60.0,
        "draining": True,
        "processes": 4,
        "traffic": TRAFFIC,
        "models": [model] * 9,
        "tenants": [TenantNow(name=name, requests=10**9, tokens=10**12, dollars=12_345.6, budget=5.0)] * 9,
        "recent": [request] * 200,
        "causes": {"long prefill": 3, "queued": 12},
        "objectives": [
            ObjectiveNow(
                name="ttft",
                model=name,
                bound=0.5,
                target=0.99,
                good=0.5,
                burn_5m=50,
                burn_1h=50,
                state="page",
            )
        ],
        "alerts": [AlertNow(name="A", severity="page", summary="Everything fails. " * 9, since=0.0)] * 9,
        "routing": RoutingNow(savings=0.4, tiers=[tier] * 3),
        "gpus": [GpuNow(index=0, name="H200", memory_used=2**36, memory_total=2**37, power=699.0)] * 8,
        **fields,
    }
    return Snapshot(**content)


def lines(now: Snapshot, width: int, rows: int | None, trouble: str = "") -> list[str]:
    console = Console(width=width, height=rows or 1000, color_system=None)
    with console.capture() as capture:
        console.print(view(now, "http://127.0.0.1:8000", rows=rows, width=width, trouble=trouble))
    return capture.get().rstrip("\n").split("\n")


@pytest.mark.parametrize(("width", "rows"), [(80, 24), (80, 10), (60, 24), (200, 60), (40, 10), (20, 5)])
def test_it_fits_the_terminal(width: int, rows: int) -> None:
    shown = lines(busy(), width, rows, trouble="no answer")
    assert len(shown) <= rows
    assert all(len(line) <= width for line in shown)


def test_at_80_by_24_everything_has_its_place() -> None:
    text = "\n".join(lines(busy(), 80, 24))
    for part in (
        "penstock 1.2.3",
        "requests/s 123",
        "PAGE",
        "MODEL",
        "REPLICA",
        "unhealthy",
        "shutting down",
        "queue  interactive 0  standard 63  batch 0",
        "slow by  queued 12  long prefill 3",
    ):
        assert part in text, part


@pytest.mark.parametrize("width", [80, 60, 40, 30])
def test_names_are_the_last_to_go(width: int) -> None:
    shown = lines(busy("a-long-name"), width, 40)
    for head in ("MODEL", "REPLICA", "TENANT", "REQUEST"):
        row = shown[next(at for at, line in enumerate(shown) if line.startswith(head)) + 1]
        assert re.match(r"a-long-name|\d\d:\d\d:\d\d", row), row


def test_all_of_it_is_printed_where_there_is_no_screen() -> None:
    text = "\n".join(lines(busy(), 120, None))
    assert text.count("failed 502") == 200
    assert "GPU" in text
    assert "SAVED 40%" in text


def test_what_a_terminal_would_obey_is_not_shown_to_it() -> None:
    text = "\n".join(lines(busy("\x1b]0;owned\x07\x1b[2J[red]x"), 120, None))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]x" in text


def test_a_server_without_anything_is_shown_too() -> None:
    empty = busy(
        models=[],
        tenants=[],
        recent=[],
        objectives=[],
        alerts=[],
        causes={},
        routing=None,
        gpus=[],
        traffic=Traffic(),
    )
    assert len(lines(empty, 80, 24)) == 3


# ---------------------------------------------------------------- a real server


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with in_a_thread(OpenAIServer()) as upstream:
        door = Door(tmp_path_factory.mktemp("top"), {"models": {"chat": behind(upstream.url)}})
        try:
            assert door.ask("chat").status == 200
            yield door
        finally:
            door.stop()


def test_once_prints_a_table_and_json_an_object(door: Door) -> None:
    def printed() -> bool:
        return " ok " in CliRunner().invoke(app, ["top", "--once", "--url", door.url]).stdout

    poll(printed)
    done = CliRunner().invoke(app, ["top", "--json", "--url", door.url])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["models"][0]["name"] == "chat"
    # An address as clients of OpenAI's API write it.
    assert CliRunner().invoke(app, ["top", "--once", "--url", f"{door.url}/v1"]).exit_code == 0


def test_it_watches_until_ctrl_c_and_leaves_the_terminal_as_it_was(door: Door, tmp_path: Path) -> None:
    owner, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(terminal)
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "penstock", "top", "--url", door.url, "--every", "0.2"]
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=errors, env=environment)
    try:
        seen = b""
        deadline = time.monotonic() + 30
        while seen.count(b"requests/s") < 3:
            assert time.monotonic() < deadline, seen
            seen += os.read(owner, 65536)
        process.send_signal(signal.SIGINT)
        while b"\x1b[?1049l" not in seen:
            assert time.monotonic() < deadline, seen
            seen += os.read(owner, 65536)
        assert process.wait(10) == 0
        assert (tmp_path / "errors").read_bytes() == b""
        assert b"\x1b[?1049h" in seen
        assert b"\x1b[?25h" in seen.rpartition(b"\x1b[?25l")[2], "the cursor is shown again"
        assert termios.tcgetattr(terminal) == before
        plain = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", seen).decode()
        assert "chat" in plain
    finally:
        process.kill()
        process.wait()
        os.close(owner)
        os.close(terminal)


# ---------------------------------------------------------------- what is wrong


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["top", "--once", *arguments]) != 0
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_keys_are_asked_for_and_wrong_ones_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with in_a_thread(OpenAIServer()) as upstream:
        door = Door(tmp_path, {"models": {"chat": behind(upstream.url)}})
        try:
            plain = door.key("acme")["Authorization"].split()[1]
            admin = door.key("ops", "--admin")["Authorization"].split()[1]
            poll(lambda: door.get("/console/state").status == 401)
            assert "needs an API key" in refused(capsys, "--url", door.url)
            assert "--key" in refused(capsys, "--url", door.url, "--key", "nonsense")
            assert "administrator" in refused(capsys, "--url", door.url, "--key", plain)
            assert run(["top", "--once", "--url", door.url, "--key", admin]) == 0
        finally:
            door.stop()


def test_a_server_that_is_no_penstock_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    with in_a_thread(OpenAIServer()) as other:  # answers every path with a list of models
        assert "not as this version of Penstock does" in refused(capsys, "--url", other.url)

    async def page(request: Request) -> Any:
        return answer({"detail": "Not Found"}, 404)

    with in_a_thread(LocalServer(page)) as other:
        assert "no Penstock server" in refused(capsys, "--url", other.url)


@pytest.mark.parametrize("body", [b"{nope", b'{"a": "\xff"}', b'{"a": 1}', b'{"a":' + b"[" * 100_000])
@pytest.mark.parametrize("option", ["--once", "--json"])
def test_what_is_no_state_is_a_sentence(body: bytes, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def odd(request: Request) -> Any:
        return Reply(200, body, {"content-type": "application/json"})

    with in_a_thread(LocalServer(odd)) as other:
        assert "not as this version of Penstock does" in refused(capsys, option, "--url", other.url)


@pytest.mark.parametrize("key", ["sk-penstock-REALSECRET\rx", "ключ", "sk-penstock-REALSECRET\u200b"])
def test_what_is_no_key_is_a_sentence_without_it(
    key: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    said = refused(capsys)
    assert "characters that no key has" in said
    assert "REALSECRET" not in said


def test_a_keys_line_end_is_no_part_of_it() -> None:
    assert (
        Watched("http://127.0.0.1", "sk-penstock-x\r\n")._headers["Authorization"] == "Bearer sk-penstock-x"
    )


def test_a_servers_words_are_not_obeyed_by_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    async def rude(request: Request) -> Any:
        return answer({"error": {"message": "\x1b[31mred\x1b]0;x\x07"}}, 403)

    with in_a_thread(LocalServer(rude)) as other:
        said = refused(capsys, "--url", other.url)
    assert "red" in said
    assert "\x1b" not in said
    assert "\x07" not in said


def test_a_proxy_that_answers_for_a_server_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does while the server is started again: the last figures stay."""
    replies = [
        Reply(502, b"<html>Bad Gateway</html>", {"content-type": "text/html"}),
        Reply(200, b"<html>Back soon</html>", {"content-type": "text/html"}),
        answer(msgspec.to_builtins(busy(version="9.9.9"))),
    ]
    shown: list[str] = []

    async def speak(request: Request) -> Any:
        return replies.pop(0)

    class Screen:
        def __init__(self, **_: Any) -> None: ...
        def __enter__(self) -> Screen:
            return self

        def __exit__(self, *_: object) -> None: ...

        def update(self, group: Any, refresh: bool) -> None:
            console = Console(width=120, color_system=None)
            with console.capture() as capture:
                console.print(group)
            shown.append(capture.get())
            if "9.9.9" in shown[-1]:
                raise KeyboardInterrupt

    monkeypatch.setattr("rich.live.Live", Screen)
    with in_a_thread(LocalServer(speak)) as proxy:
        _watch(Watched(proxy.url, None), busy(), 0.01)
    assert "answered 502" in shown[1]
    assert "no Penstock server" in shown[2]
    assert "figures of" in shown[2]
    assert len(shown) == 4


def test_a_server_that_is_not_there_or_no_address_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be reached" in refused(capsys, "--url", "http://127.0.0.1:9")
    for url in (
        "ftp://x",
        "http://",
        "http://x:99999",
        "http://x:0",
        "http://[::1",
        f"http://{'a' * 300}:80",
    ):
        assert "--url must be an address" in refused(capsys, "--url", url)
