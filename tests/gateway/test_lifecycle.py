"""How a server starts, refuses, drains, dies and ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.server import Server, poll

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
PROBE_EVERY = 4  # seconds
LONG = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True}

Start = Callable[..., Server]


@pytest.fixture
def start(default_model: Path, tmp_path: Path) -> Iterator[Start]:
    """Start servers of one's own; they are stopped afterwards."""
    running: list[Server] = []

    def begin(*options: str) -> Server:
        server = Server(str(default_model), *options, log=tmp_path / f"log{len(running)}")
        running.append(server)
        return server

    yield begin
    for server in running:
        server.stop()


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`penstock serve` that is expected to give up by itself."""
    command = [sys.executable, "-m", "penstock", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def assert_one_sentence(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.strip().splitlines()
    assert all(word in line for word in words), line
    assert line.endswith(".")


def test_a_taken_port_is_one_sentence(default_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert_one_sentence(serve(str(default_model), "--port", port), port, "in use")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_a_public_address_needs_a_key_or_an_explicit_word(default_model: Path, host: str) -> None:
    assert_one_sentence(
        serve(str(default_model), "--host", host, "--port", "0"), host, "--api-key", "--allow-public"
    )


def test_an_address_of_another_machine_is_one_sentence(default_model: Path) -> None:
    done = serve(str(default_model), "--host", "192.0.2.1", "--port", "0", "--allow-public")
    assert_one_sentence(done, "192.0.2.1")


def test_a_bad_model_file_is_one_sentence(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + os.urandom(4096))
    assert_one_sentence(serve(str(bad), "--port", "0"), "bad.gguf")


def test_the_first_lines_say_where_it_is_and_how_to_try_it(server: Server) -> None:
    banner = "".join(server.output)
    assert "SmolLM2-135M-Instruct is ready" in banner
    assert f"Listening on {server.url}" in banner


def test_keys_names_and_a_full_queue(start: Start) -> None:
    server = start(
        "--api-key", "first", "--api-key", "second",
        "--served-model-name", "tiny", "--served-model-name", "org/small",
        "--max-running", "2", "--max-waiting", "2", "--max-model-len", "1024",
    )  # fmt: skip
    first, second = ({"Authorization": f"Bearer {key}"} for key in ("first", "second"))
    assert_keys(server, first, second)
    assert_names(server, first)
    assert_nothing_cached_is_shared(server, first, second)
    assert_a_default_is_no_reason_to_refuse(server, first)
    assert_full_queue(server, first)


def assert_keys(server: Server, first: dict[str, str], second: dict[str, str]) -> None:
    for path in ("/health", "/ready", "/version", "/metrics", "/openapi.json", "/"):
        assert server.get(path).status == 200
    for headers in ({}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Bearer wrong"},
                    {"Authorization": "Basic first"}, {"Authorization": "first"}, {"X-Api-Key": "wrong"},
                    {"Authorization": "Bearer first second"}, {"Authorization": "Bearer \xff"}):  # fmt: skip
        for method, path, body in (
            ("GET", "/v1/models", None),
            ("HEAD", "/v1/models", None),
            ("GET", "/models", None),
            ("GET", "/v1/models/tiny", None),
            ("POST", TEXT, {"prompt": "hi"}),
            ("POST", CHAT, b"not even json"),
            ("POST", "/tokenize", {"prompt": "hi"}),
            ("POST", "/detokenize", {"tokens": [1]}),
        ):
            reply = server.request(method, path, body, headers)
            assert reply.status == 401, (method, path, headers)
            if method != "HEAD":
                assert reply.error["code"] == "invalid_api_key"
                assert reply.headers["www-authenticate"] == "Bearer"
    for good in (first, second, {"authorization": "bearer  first "}, {"X-Api-Key": "first"}):
        assert server.request("GET", "/v1/models", headers=good).status == 200


def assert_names(server: Server, key: dict[str, str]) -> None:
    models = server.request("GET", "/v1/models", headers=key).json()["data"]
    assert [model["id"] for model in models] == ["tiny", "org/small"]
    assert server.request("GET", "/v1/models/org/small", headers=key).json()["id"] == "org/small"
    for name in ("tiny", "org/small"):
        answer = server.post(TEXT, {"model": name, "prompt": "hi", "max_tokens": 1}, key).json()
        assert answer["model"] == name
    assert server.post(TEXT, {"model": "SmolLM2-135M-Instruct", "prompt": "hi"}, key).status == 404


def assert_nothing_cached_is_shared(server: Server, first: dict[str, str], second: dict[str, str]) -> None:
    def cached(key: dict[str, str], **fields: str) -> int:
        body = {"prompt": "The rivers of the north are long and cold. " * 5, "max_tokens": 1, **fields}
        return int(server.post(TEXT, body, key).json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert cached(first) == 0
    assert cached(first) > 0
    assert cached(second) == 0
    assert cached(second) > 0
    # A salt divides what a key has; it cannot reach into what another one has.
    assert cached(first, cache_salt="a") == 0
    assert cached(second, cache_salt="a") == 0
    assert cached(first, cache_salt="a") > 0


def assert_a_default_is_no_reason_to_refuse(server: Server, key: dict[str, str]) -> None:
    """A completion has 16 tokens by default, but here the context leaves room for three."""
    reply = server.post(TEXT, {"prompt": [100] * 1021, "ignore_eos": True}, key)
    assert reply.status == 200, reply.body
    assert reply.json()["usage"]["completion_tokens"] == 3
    assert reply.json()["choices"][0]["finish_reason"] == "length"
    assert server.post(TEXT, {"prompt": [100] * 1021, "max_tokens": 16}, key).status == 400


def assert_full_queue(server: Server, key: dict[str, str]) -> None:
    replies: list[Any] = []

    def ask() -> None:
        replies.append(server.post(TEXT, {"prompt": "hi", "max_tokens": 60, "ignore_eos": True}, key))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    served = [reply for reply in replies if reply.status == 200]
    refused = [reply for reply in replies if reply.status == 429]
    assert len(served) + len(refused) == 16
    assert len(served) >= 4
    assert refused
    for reply in refused:
        assert reply.error["code"] == "queue_full"
        assert int(reply.headers["retry-after"]) >= 1
        assert int(reply.headers["retry-after-ms"]) >= 1
    # Of several prompts in one request all are refused, or none.
    reply = server.post(TEXT, {"prompt": ["hi"] * 10, "max_tokens": 1}, key)
    assert reply.status == 429
    poll(lambda: server.metric("penstock_kv_blocks", state="held") == 0)
    assert server.post(TEXT, {"prompt": ["hi"] * 2, "max_tokens": 1}, key).status == 200


def test_a_stop_signal_drains_and_ends_with_zero(start: Start) -> None:
    server = start("--drain-seconds", "60")
    with server.streaming(TEXT, {"prompt": "hi", "max_tokens": 60, "ignore_eos": True}) as chunks:
        next(chunks)
        server.signal(signal.SIGTERM)
        poll(lambda: server.get("/ready").status == 503)
        assert server.get("/health").status == 200
        for path, body in (
            (TEXT, {"prompt": "hi"}),
            (CHAT, {"messages": [{"role": "user", "content": "hi"}]}),
        ):
            reply = server.post(path, body)
            assert reply.status == 503
            assert int(reply.headers["retry-after"]) >= 1
            assert reply.error["message"]
        # Let in before the end, and heard after it: a connection that has said nothing yet is not reset.
        with socket.create_connection((server.host, server.port)) as late:
            *rest, done = chunks
            time.sleep(0.3)
            late.sendall(b"GET /ready HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert late.recv(1 << 12).startswith(b"HTTP/1.1 503 ")
    assert done == "[DONE]"
    assert rest[-1]["choices"][0]["finish_reason"] == "length"
    assert server.wait() == 0


def test_what_outlasts_the_drain_ends_with_an_error_event(start: Start) -> None:
    server = start("--drain-seconds", "1")
    with server.streaming(TEXT, LONG) as chunks:
        next(chunks)
        server.signal(signal.SIGINT)
        *_, error, done = chunks
    assert error["error"]["type"] == "service_unavailable_error"
    assert done == "[DONE]"
    assert server.wait() == 0
    assert server.log() == ""


def test_a_second_signal_leaves_at_once(start: Start) -> None:
    server = start("--drain-seconds", "600")
    engines = server.engine_pids()
    with server.streaming(TEXT, LONG) as chunks:
        next(chunks)
        server.signal(signal.SIGINT)
        poll(lambda: server.get("/ready").status == 503)
        server.signal(signal.SIGINT)
        assert server.wait(20) == 130
    assert server.log() == ""
    assert engines
    poll(lambda: not any(Path(f"/proc/{pid}").exists() for pid in engines))


def test_a_dead_engine_ends_its_streams_and_is_started_again_for_all_others(start: Start) -> None:
    server = start()
    [engine] = server.engine_pids()
    whole: list[Any] = []
    short = {**LONG, "max_tokens": 100}
    waiting = threading.Thread(target=lambda: whole.append(server.post(TEXT, short)))
    with server.streaming(TEXT, LONG) as chunks:
        next(chunks)
        waiting.start()
        poll(lambda: server.metric("vllm:num_requests_running") == 2)
        os.kill(engine, signal.SIGKILL)
        *_, error, done = chunks
    assert "engine" in error["error"]["message"]
    assert done == "[DONE]"
    assert server.get("/health").status == 200
    waiting.join()
    assert whole[0].status == 200  # nothing of it had been sent: the new engine has answered it
    assert server.engine_pids() != [engine]
    assert "Starting it again" in server.log()


@pytest.fixture(scope="module")
def undisturbed(default_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that nobody else talks to, and that looks after its engine more often than others do."""
    folder = tmp_path_factory.mktemp("undisturbed")
    models = {"default": {"backends": [{"engine": str(default_model)}]}}
    health = {"silence": "3s", "probe_every": f"{PROBE_EVERY}s"}
    config = folder / "penstock.yaml"
    config.write_text(yaml.safe_dump({"models": models, "health": health}))
    server = Server(None, "--config", str(config), log=folder / "log")
    yield server
    server.stop()


def test_a_stopped_engine_is_not_ready_while_its_server_is_alive(undisturbed: Server) -> None:
    server = undisturbed
    [engine] = server.engine_pids()
    os.kill(engine, signal.SIGSTOP)
    try:
        poll(lambda: server.get("/ready").status == 503)
        assert server.get("/health").status == 200
        assert "progress" in server.get("/ready").json()["reason"]
    finally:
        os.kill(engine, signal.SIGCONT)
    poll(lambda: server.get("/ready").status == 200)


def test_an_idle_engine_is_probed_with_a_real_token_now_and_then(undisturbed: Server) -> None:
    server = undisturbed

    def generated() -> float:
        return server.metric("vllm:generation_tokens_total")

    poll(lambda: generated() > 0)  # the token of its start, told with the first heartbeat
    began = time.monotonic()
    assert server.post(TEXT, {"prompt": "hi", "max_tokens": 1}).status == 200
    before = generated()
    poll(lambda: generated() > before)
    assert time.monotonic() - began > PROBE_EVERY, "it was probed although it had just generated"
    assert server.get("/ready").status == 200
    assert generated() == before + 1
