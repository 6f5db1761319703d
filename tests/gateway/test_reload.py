"""Reading the configuration again while requests run: nothing is dropped, and nothing wrong is taken over."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config import GatewayConfig, ModelConfig
from penstock.gateway.deployment import Deployment
from penstock.gateway.front import Signals
from tests.gateway.door import CHAT, Door, bearer, behind, chat, save_tiny_chat
from tests.server import Reply, poll
from tests.servers.gated import OpenAIServer
from tests.servers.http import in_a_thread

TAKEN, REFUSED = "Read the configuration again", "The configuration was not changed"


@pytest.fixture(scope="module")
def one() -> Iterator[OpenAIServer]:
    with in_a_thread(OpenAIServer("one")) as server:
        yield server


@pytest.fixture(scope="module")
def two() -> Iterator[OpenAIServer]:
    with in_a_thread(OpenAIServer("two")) as server:
        yield server


@pytest.fixture(scope="module")
def running(one: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    door = Door(tmp_path_factory.mktemp("reload"), {"models": {"chat": behind(one.url)}})
    yield door
    one.open()
    door.stop()
    assert "Traceback" not in Path(door._log.name).read_text()


@pytest.fixture
def door(running: Door, one: OpenAIServer) -> Door:
    """As it was started."""
    one.open()
    reload(running, {"models": {"chat": behind(one.url)}})
    return running


def reload(door: Door, config: dict[str, Any] | None) -> str:
    """Returns what the log says of it, once it says something."""
    before = len(door.log())
    door.reload(config)
    poll(lambda: TAKEN in door.log()[before:] or REFUSED in door.log()[before:])
    return door.log()[before:]


def who(reply: Reply) -> str:
    """The server that answered."""
    assert reply.status == 200, reply.body
    return str(reply.json()["choices"][0]["message"]["content"]).split()[0]


def test_models_prices_and_limits_change_while_it_runs(
    door: Door, one: OpenAIServer, two: OpenAIServer
) -> None:
    assert door.ask("new").status == 404
    assert door.ask("chat").headers["x-penstock-cost"] is None
    said = reload(
        door,
        {
            "models": {
                "chat": behind(one.url, price={"input": 1, "output": 1}, aliases=["talk"]),
                "new": behind(two.url),
            },
            "tenants": {"default": {"requests_per_minute": 4, "max_tokens": 2}},
        },
    )
    assert "+new" in said
    assert "~chat" in said
    assert who(door.ask("new")) == "two"
    reply = door.ask("talk")
    assert float(reply.headers["x-penstock-cost"]) > 0
    assert (reply.headers["x-penstock-max-tokens"], reply.headers["x-ratelimit-limit-requests"]) == ("2", "4")
    assert [door.ask("chat").status for _ in range(3)] == [200, 200, 429]
    assert [model["id"] for model in door.get("/v1/models").json()["data"]] == ["chat", "talk", "new"]


def test_a_backend_that_is_removed_finishes_its_streams_and_gets_nothing_more(
    door: Door, one: OpenAIServer, two: OpenAIServer
) -> None:
    one.close()
    with door.streaming(CHAT, chat("wait", max_tokens=5)) as chunks:
        next(chunks)
        reload(door, {"models": {"chat": behind(two.url)}})
        before = len(one.bodies)
        assert [who(door.ask("chat")) for _ in range(4)] == ["two"] * 4
        assert len(one.bodies) == before
        one.open()
        *rest, done = chunks
    assert done == "[DONE]"
    assert sum(bool(chunk["choices"][0]["delta"]) for chunk in rest) == 4
    assert not any("error" in chunk for chunk in rest)


def test_a_model_that_is_removed_finishes_what_runs_and_tells_those_who_wait(
    door: Door, one: OpenAIServer, two: OpenAIServer
) -> None:
    narrow = behind(one.url, backend={"max_concurrent": 1})
    reload(door, {"models": {"chat": narrow, "other": behind(two.url)}})
    one.close()
    replies: list[Reply] = []
    with door.streaming(CHAT, chat("wait", model="chat")) as chunks:
        next(chunks)
        waiting = threading.Thread(target=lambda: replies.append(door.ask("chat")))
        waiting.start()
        poll(lambda: door.metric("penstock_queue_requests", model_name="chat") == 1)
        reload(door, {"models": {"other": behind(two.url)}})
        waiting.join(30)
        assert not waiting.is_alive(), "nobody told it that its model is gone"
        assert (replies[0].status, replies[0].error["code"]) == (503, "engine_unavailable")
        assert door.ask("chat").status == 404
        one.open()
        assert list(chunks)[-1] == "[DONE]"


BAD = {
    "no YAML": "models: [",
    "an unknown key": "modles: {}",
    "a limit below zero": "models: {chat: {backends: [{vllm: 'http://127.0.0.1:1'}]}}\n"
    "tenants: {a: {requests_per_minute: -1}}",
    "a price that is no number": "models: {chat: {backends: [{vllm: 'http://x'}], price: {input: .nan}}}",
    "a budget without end": "models: {chat: {backends: [{vllm: 'http://127.0.0.1:1'}]}}\n"
    "tenants: {a: {monthly_budget: .inf}}",
    "nobody who answers": "models: {chat: {backends: []}}",
    "an address that is none": "models: {chat: {backends: [{vllm: 'ftp://x'}]}}",
    "a kind's option that is none": "models: {chat: {backends: [{vllm: 'http://x', options: {prefxi: /a}}]}}",
    "a circle": "models: {a: {backends: [{vllm: 'http://x'}], fallbacks: [a]}}",
    "bytes": "\0\1\2",
}


@pytest.mark.parametrize("kind", list(BAD))
def test_a_bad_file_is_refused_in_a_sentence_and_the_old_one_goes_on(door: Door, kind: str) -> None:
    door.config.write_text(BAD[kind])
    said = reload(door, None)
    assert REFUSED in said
    assert said.strip().endswith(".")
    assert "Traceback" not in said
    assert who(door.ask("chat")) == "one"


def test_a_file_that_is_gone_changes_nothing(door: Door) -> None:
    content = door.config.read_text()
    door.config.unlink()
    try:
        assert REFUSED in reload(door, None)
        assert who(door.ask("chat")) == "one"
    finally:
        door.config.write_text(content)


def test_what_takes_a_new_start_is_named_and_stays(door: Door, one: OpenAIServer, tmp_path: Path) -> None:
    port = door.port
    config = {
        "models": {"chat": behind(one.url)},
        "log_level": "error",
        "state_dir": str(tmp_path / "elsewhere"),
    }
    before = len(door.log())
    reload(door, config)
    poll(lambda: "take a new start" in door.log()[before:])
    line = next(line for line in door.log()[before:].splitlines() if "take a new start" in line)
    assert "log_level" in line
    assert "port" not in line, "it was given by a flag, which has not changed"
    assert door.port == port
    assert who(door.ask("chat")) == "one"
    assert not (tmp_path / "elsewhere").exists()


def test_keys_of_the_file_come_and_go_with_it(door: Door, one: OpenAIServer) -> None:
    models = {"models": {"chat": behind(one.url)}}
    reload(door, {**models, "api_keys": ["old", "other"]})
    assert door.ask("chat").status == 401
    assert door.ask("chat", bearer("old")).status == 200
    reload(door, {**models, "api_keys": ["other", "new"]})
    assert door.ask("chat", bearer("old")).status == 401, "a key that leaked is taken out like this"
    assert door.ask("chat", bearer("other")).status == 200
    assert door.ask("chat", bearer("new")).status == 200
    reload(door, models)
    assert door.ask("chat").status == 200


def test_a_door_that_others_can_reach_does_not_lose_its_lock(one: OpenAIServer, tmp_path: Path) -> None:
    models = {"models": {"chat": behind(one.url)}}
    door = Door(tmp_path, {**models, "api_keys": ["old"]}, "--host", "0.0.0.0")
    door.host = "127.0.0.1"
    try:
        said = reload(door, models)
        assert REFUSED in said
        assert "--allow-public" in said
        assert door.ask("chat").status == 401
        assert door.ask("chat", bearer("old")).status == 200
    finally:
        door.stop()


def test_many_signals_at_once_end_with_the_last_file(
    door: Door, one: OpenAIServer, two: OpenAIServer
) -> None:
    for number in range(10):
        server = one if number % 2 else two
        door.reload({"models": {"chat": behind(server.url), f"extra{number}": behind(two.url)}})
    reload(door, {"models": {"chat": behind(two.url)}})
    poll(lambda: len(door.get("/v1/models").json()["data"]) == 1)
    assert [who(door.ask("chat")) for _ in range(3)] == ["two"] * 3
    replicas = door.get("/admin/backends").json()["data"][0]["replicas"]
    assert len(replicas) == 1, replicas


def test_engines_stay_as_they_were_started_and_that_is_said(tmp_path: Path, one: OpenAIServer) -> None:
    tiny = str(save_tiny_chat(tmp_path / "model"))

    def config(**engine: Any) -> dict[str, Any]:
        backends = [{"engine": tiny, **engine}, *behind(one.url)["backends"]]
        return {"models": {"chat": {"backends": backends, "balance": "round_robin"}}}

    door = Door(tmp_path / "door", config())
    try:
        for changed in (config(max_running=3), config(replicas=2), {"models": {"chat": behind(one.url)}}):
            said = reload(door, changed)
            assert REFUSED in said
            assert "restart" in said or "while the server runs" in said
        assert "The engines of model 'default' cannot be changed" in reload(door, {"log_level": "info"})
        pids = door.engine_pids()
        # What is not the engine's can still change around it.
        assert TAKEN in reload(door, {**config(), "tenants": {"default": {"max_tokens": 1}}})
        answers = [door.ask("chat") for _ in range(4)]
        assert [reply.headers["x-penstock-max-tokens"] for reply in answers] == ["1"] * 4
        assert {reply.headers["x-penstock-model"] for reply in answers} == {"chat", "upstream"}
        assert door.engine_pids() == pids
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    finally:
        door.stop()


async def test_a_signal_that_comes_too_early_is_obeyed_as_soon_as_it_can_be() -> None:
    loop = asyncio.get_running_loop()
    signals = Signals(loop)
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.05)
        reread = asyncio.Event()

        async def act() -> None:
            reread.set()

        signals.on_hangup(act)
        await asyncio.wait_for(reread.wait(), 30)
    finally:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_model_that_stays_the_same_keeps_what_it_has_learned() -> None:
    gateway, model = GatewayConfig(), ModelConfig(name="chat", balance="prefix")
    deployment = Deployment(model, gateway, None)
    policy, retries = deployment.dispatcher.policy, deployment.retries
    deployment.configure(ModelConfig(name="chat", balance="prefix", max_tokens=5), gateway)
    assert deployment.dispatcher.policy is policy
    assert deployment.retries is retries
    deployment.configure(ModelConfig(name="chat", balance="round_robin"), gateway)
    assert deployment.dispatcher.policy is not policy
