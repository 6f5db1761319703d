"""Who may what, and how much of it: keys, access lists, limits, budgets and prices at a door that runs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from penstock.gateway.accounts import KeyRing
from penstock.gateway.accounts.keys import ANYBODY, mint
from penstock.gateway.admin import check_admin
from penstock.gateway.call import Call
from penstock.gateway.store import Database, KeyTable
from penstock.protocol.errors import HTTPError
from tests.gateway.door import CHAT, HI, TEXT, Door, bearer, behind, chat, id_of
from tests.server import Reply, Server, poll
from tests.servers.gated import OpenAIServer

PRICE = {"input": 1, "output": 2}  # USD per 1M tokens
# The prompt HI has 5 tokens for the server behind the door, and an answer 3 unless it is asked for more.
COST = 5 * 1e-6 + 3 * 2e-6

Keys = dict[str, dict[str, str]]  # headers, by tenant


@pytest.fixture(scope="module")
def door(upstream: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    config = {
        "models": {
            "chat": behind(upstream.url, price=PRICE, aliases=["talk"]),
            "free": behind(upstream.url),
            "secret": behind(upstream.url),
        },
        "tenants": {
            "acme": {"models": ["chat", "free"]},
            "few": {"requests_per_minute": 3},
            "small": {"tokens_per_minute": 2000},
            "single": {"concurrent": 1},
            "poor": {"monthly_budget": 0.001},
            "default": {},
        },
    }
    running = Door(tmp_path_factory.mktemp("tenants"), config)
    yield running
    upstream.open()
    running.stop()
    assert "Traceback" not in Path(running._log.name).read_text()


@pytest.fixture(scope="module")
def keys(door: Door) -> Keys:
    """One for each tenant, made while the door is open; `few too` is a second one of `few`."""
    tenants = ("acme", "few", "small", "single", "poor", "counted")
    made = {tenant: door.key(tenant) for tenant in tenants} | {"few too": door.key("few")}
    made["admin"] = door.key("default", "--admin")
    poll(lambda: door.get("/v1/models").status == 401)  # it is locked from the first of them on
    known(door, made["admin"])
    return made


@pytest.fixture(scope="module")
def acme(keys: Keys) -> dict[str, str]:
    return keys["acme"]


@pytest.fixture(scope="module")
def admin(keys: Keys) -> dict[str, str]:
    return keys["admin"]


def known(door: Door, key: dict[str, str]) -> dict[str, str]:
    """A key that the door has noticed."""
    poll(lambda: door.request("GET", "/v1/models", headers=key).status == 200)
    return key


# --------------------------------------------------------------------- keys


def test_a_door_without_keys_is_open_and_the_first_key_locks_it(
    upstream: OpenAIServer, tmp_path: Path
) -> None:
    door = Door(tmp_path, {"models": {"chat": behind(upstream.url)}})
    try:
        assert door.ask("chat").status == 200
        key = door.key()
        poll(lambda: door.ask("chat").status == 401)
        assert door.ask("chat", key).status == 200
        door.command("keys", "revoke", id_of(key))
        poll(lambda: door.ask("chat", key).status == 401)
        assert door.ask("chat").status == 401, "it stays locked without any key that is left"
    finally:
        door.stop()


def test_keys_made_while_it_runs_are_known_and_revoked_ones_are_refused(
    door: Door, acme: dict[str, str]
) -> None:
    key = known(door, door.key("acme"))
    assert door.request("GET", "/v1/models", headers={"x-api-key": key["Authorization"][7:]}).status == 200
    door.command("keys", "revoke", id_of(key))
    poll(lambda: door.ask("chat", key).status == 401)
    refused = door.ask("chat", key)
    assert refused.error["code"] == "invalid_api_key"
    assert refused.error == door.ask("chat", bearer("wrong")).error, "it does not tell why"
    assert door.ask("chat", acme).status == 200


def test_a_key_that_has_ended_is_refused(door: Door, acme: dict[str, str]) -> None:
    def taken(life: int) -> bool:
        """Whether a key that lives for so many seconds is noticed before its end, and refused after it."""
        end = int(time.time()) + life
        secret, record = mint("short", "acme", created=end - life, expires=end)
        with closing(Database(door.state)) as database:
            KeyTable(database).add(record)
        seen: set[int] = set()

        def ended() -> bool:
            seen.add(door.ask("chat", bearer(secret)).status)
            return time.time() > end + 1 and door.ask("chat", bearer(secret)).status == 401

        poll(ended)
        return 200 in seen

    assert any(taken(life) for life in (2, 20)), "no key was ever taken"


ROUTES = ("/v1/models", "/v1/models/chat", "/models", "/admin/backends")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_every_method_of_a_route_that_needs_a_key_needs_it(
    door: Door, acme: dict[str, str], method: str
) -> None:
    for path in ROUTES:
        assert door.request(method, path).status == 401, (method, path)


def test_strangers_do_not_see_what_tenants_spend(
    door: Door, acme: dict[str, str], admin: dict[str, str]
) -> None:
    assert door.get("/metrics").status == 200, "somebody on this machine"
    for passed_on in ({"X-Forwarded-For": "198.51.100.7"}, {"Via": "1.1 proxy"}, {"Host": "gateway.example"}):
        assert door.request("GET", "/metrics", headers=passed_on).status == 401
        refused = door.request("GET", "/metrics", headers=passed_on | acme)
        assert (refused.status, refused.error["code"]) == (403, "admin_only")
        assert door.request("GET", "/metrics", headers=passed_on | admin).status == 200
    config = yaml.safe_load(door.config.read_text())
    for content, status in ((config | {"metrics": {"open": True}}, 200), (config, 401)):
        door.reload(content)
        poll(lambda status=status: door.request("GET", "/metrics", headers=passed_on).status == status)


def test_what_changes_the_server_needs_an_administrators_key(
    door: Door, acme: dict[str, str], admin: dict[str, str]
) -> None:
    body = {"model": "chat", "url": "http://127.0.0.1:9"}
    for method, sent in (("GET", None), ("HEAD", None), ("POST", body), ("DELETE", body)):
        assert door.request(method, "/admin/backends", sent).status == 401, method
        refused = door.request(method, "/admin/backends", sent, acme)
        assert refused.status == 403, method
        if method != "HEAD":
            assert refused.error["code"] == "admin_only"
    reply = door.request("GET", "/admin/backends", headers=admin)
    assert [model["model"] for model in reply.json()["data"]] == ["chat", "free", "secret"]
    # No backend of these models takes servers.
    assert door.request("POST", "/admin/backends", body, admin).status == 400
    assert door.request("DELETE", "/admin/backends", body, admin).status == 400


async def test_a_door_without_keys_takes_servers_from_its_own_machine_only() -> None:
    """Opened to everybody by --allow-public, it answers everybody; but who joins reads others' prompts."""

    async def nothing(*_: Any) -> Any:
        raise AssertionError("not called")

    gateway: Any = SimpleNamespace(keys=KeyRing())
    for client, allowed in (
        (("127.0.0.1", 9), True),
        (("::1", 9), True),
        (("192.0.2.7", 9), False),
        (None, False),
    ):
        call = Call({"type": "http", "headers": [], "client": client}, nothing, nothing)
        if allowed:
            check_admin(gateway, call, ANYBODY)
        else:
            with pytest.raises(HTTPError) as caught:
                check_admin(gateway, call, ANYBODY)
            assert caught.value.status == 403


def raw(door: Server, target: bytes, *headers: bytes, method: bytes = b"GET") -> int:
    lines = b"".join(b"%b\r\n" % header for header in headers)
    reply = door.raw(b"%b %b HTTP/1.1\r\n%bConnection: close\r\n\r\n" % (method, target, lines))
    return int(reply.split(b" ")[1])


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/models?x=/health",
        b"/v1/models#/health",
        b"/v1/%6dodels",
        b"/%76%31/models",
        b"http://elsewhere/v1/models",
        b"http://elsewhere/health/../v1/models",
        b"/v1/models/..%2f..%2fhealth",
        b"/v1/models/../../health",
        b"/health/../v1/models",
        b"//v1/models",
        b"/v1//models",
        b"/health/",
        b"/health//",
        b"/health%2f",
        b"/./v1/models",
        b"/v1/models/",
        b"/V1/models",
        b"/admin/backends/",
        b"//admin/backends",
    ],
)
def test_no_way_of_writing_a_path_gets_past_the_lock(door: Door, acme: dict[str, str], target: bytes) -> None:
    for method in (b"GET", b"HEAD", b"POST", b"DELETE", b"OPTIONS"):
        status = raw(door, target, b"Host: x", method=method)
        assert status in (204, 401, 404, 405), (method, target, status)
        assert status != 204 or method == b"OPTIONS"


@pytest.mark.parametrize(
    "header",
    [
        b"Host: x/health",
        b"Host: x/health?",
        b"Host: /health#",
        b"Host: 127.0.0.1\x00/health",
        b"Host: x\r\nX-Forwarded-Prefix: /health",
        b"Host: x\r\nX-Original-URL: /health",
        b"Host: x\r\nX-Rewrite-URL: /health",
        b"Host: x\r\nX-Forwarded-For: 127.0.0.1",
        b"Host: x\r\nX-HTTP-Method-Override: HEAD",
    ],
)
def test_no_header_gets_past_the_lock(door: Door, acme: dict[str, str], header: bytes) -> None:
    assert raw(door, b"/v1/models", header) in (400, 401)
    assert raw(door, b"/admin/backends", header, method=b"DELETE") in (400, 401)


def test_a_public_address_is_refused_without_a_key_and_served_with_the_word_for_it(
    upstream: OpenAIServer, tmp_path: Path
) -> None:
    config = {"models": {"chat": behind(upstream.url)}}
    with pytest.raises(RuntimeError, match=r"penstock keys create.*--allow-public"):
        Door(tmp_path / "closed", config, "--host", "0.0.0.0")
    door = Door(tmp_path / "open", config, "--host", "0.0.0.0", "--allow-public")
    door.host = "127.0.0.1"
    try:
        assert door.ask("chat").status == 200
        poll(lambda: any("Ctrl-C" in line for line in said(door)))
        assert "There are no API keys: whoever can reach this address may call." in "".join(said(door))
    finally:
        door.stop()


def said(door: Door) -> list[str]:
    while not door._lines.empty():
        door.output.append(door._lines.get() or "")
    return door.output


# ------------------------------------------------------------------- models


def test_a_key_sees_and_uses_the_models_of_its_tenant_only(
    door: Door, acme: dict[str, str], admin: dict[str, str]
) -> None:
    names = [model["id"] for model in door.request("GET", "/v1/models", headers=acme).json()["data"]]
    assert names == ["chat", "talk", "free"]
    assert len(door.request("GET", "/v1/models", headers=admin).json()["data"]) == 4
    assert door.ask("talk", acme).json()["model"] == "talk"
    for path, method in (("/v1/models/secret", "GET"), (CHAT, "POST"), (TEXT, "POST"), ("/tokenize", "POST")):
        body = {**HI, "prompt": "hi", "model": "secret"} if method == "POST" else None
        refused = door.request(method, path, body, acme)
        assert (refused.status, refused.error["code"]) == (403, "model_not_allowed"), path
        assert "chat" not in refused.error["message"]
    unknown = door.ask("sceret", acme)
    assert unknown.status == 404
    assert "secret" not in unknown.error["message"], "what a key may not use it is not told of"
    assert door.ask("secret", admin).status == 200


def test_a_request_without_a_model_means_the_only_one_a_key_may_use(door: Door, acme: dict[str, str]) -> None:
    refused = door.ask(None, acme)
    assert (refused.status, refused.error["param"]) == (400, "model")
    assert "chat, free" in refused.error["message"]


# ------------------------------------------------------------------- limits


def assert_says_when(reply: Reply, code: str) -> None:
    assert reply.status == 429, reply.body
    assert (reply.error["code"], reply.error["type"]) == (code, "rate_limit_error")
    assert int(reply.headers["retry-after"]) >= 1
    assert 0 < int(reply.headers["retry-after-ms"]) <= 1000 * int(reply.headers["retry-after"])


def test_requests_a_minute_are_counted_and_said(door: Door, keys: Keys) -> None:
    key = keys["few"]
    for left in (2, 1, 0):
        reply = door.ask("chat", key)
        assert reply.status == 200
        assert reply.headers["x-ratelimit-limit-requests"] == "3"
        assert reply.headers["x-ratelimit-remaining-requests"] == str(left)
        assert reply.headers["x-ratelimit-reset-requests"].endswith("s")
        assert reply.headers["x-ratelimit-limit-tokens"] is None, "it has no such limit"
    refused = door.ask("chat", key)
    assert_says_when(refused, "rate_limit_exceeded")
    assert refused.headers["x-ratelimit-limit-requests"] == "3"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    # The limit is the tenant's: another key of it is no way around.
    assert_says_when(door.ask("chat", keys["few too"]), "rate_limit_exceeded")
    assert_says_when(door.ask("free", key, stream=True), "rate_limit_exceeded")
    row = door.billed("few", "chat", requests=5)
    assert (row["ok"], row["refused"]) == (3, 2)


def test_tokens_a_minute_are_held_at_first_and_then_as_many_as_were_used(door: Door, keys: Keys) -> None:
    key = keys["small"]
    never = door.ask("chat", key, max_tokens=5000)
    assert (never.status, never.error["code"]) == (429, "tokens_limit_exceeded")
    assert never.headers["x-should-retry"] == "false"
    assert never.headers["x-ratelimit-remaining-tokens"] == "2000"
    for _ in range(4):  # each holds 1,500 and takes 105
        reply = door.ask("chat", key, max_tokens=1500)
        assert reply.status == 200, reply.body
        assert reply.headers["x-ratelimit-limit-tokens"] == "2000"
        assert int(reply.headers["x-ratelimit-remaining-tokens"]) < 500


def test_requests_at_a_time_are_counted_and_released(door: Door, keys: Keys, upstream: OpenAIServer) -> None:
    key = keys["single"]
    upstream.close()
    before = len(upstream.bodies)
    replies: list[Reply] = []
    waiting = threading.Thread(
        target=lambda: replies.append(door.post(CHAT, chat("wait", model="chat"), key))
    )
    waiting.start()
    poll(lambda: len(upstream.bodies) > before)
    assert_says_when(door.ask("chat", key), "concurrency_limit_exceeded")
    upstream.open()
    waiting.join()
    assert replies[0].status == 200
    assert door.ask("chat", key).status == 200
    # One who hangs up holds nothing any more.
    upstream.close()
    with door.streaming(CHAT, chat("wait", model="chat"), key) as chunks:
        next(chunks)
        assert door.ask("chat", key).status == 429
    poll(lambda: door.ask("chat", key).status == 200)
    upstream.open()


def test_a_budget_that_is_spent_is_spent(door: Door, keys: Keys) -> None:
    key = keys["poor"]
    assert door.ask("chat", key, max_tokens=50).status == 200
    refused = door.ask("chat", key, max_tokens=10_000)
    assert refused.status == 429
    assert refused.error["code"] == "insufficient_quota"
    assert refused.headers["x-should-retry"] == "false", "it alone is dearer than the budget"
    assert_says_when(door.ask("chat", key, max_tokens=480), "insufficient_quota")
    assert door.ask("free", key, max_tokens=10_000).status == 200, "what costs nothing is not refused"


# -------------------------------------------------------------------- costs


def test_an_answer_says_what_it_cost_who_gave_it_and_how_long_it_took(
    door: Door, acme: dict[str, str]
) -> None:
    reply = door.ask("talk", acme)
    headers, usage = reply.headers, reply.json()["usage"]
    assert float(headers["x-penstock-cost"]) == usage["cost"] == pytest.approx(COST)
    assert float(headers["x-penstock-latency-ms"]) == usage["latency_ms"] > 0
    assert (headers["x-penstock-tier"], headers["x-penstock-model"]) == ("chat", "upstream")


def test_a_stream_says_it_in_its_headers_and_its_usage(door: Door, acme: dict[str, str]) -> None:
    wish: dict[str, Any] = {**HI, "model": "talk", "stream": True, "stream_options": {"include_usage": True}}
    reply = door.post(CHAT, wish, acme)
    assert (reply.headers["x-penstock-tier"], reply.headers["x-penstock-model"]) == ("chat", "upstream")
    assert reply.headers["x-penstock-cost"] is None
    chunks = [json.loads(line[6:]) for line in reply.body.split(b"\n\n")[:-2]]
    assert {chunk["model"] for chunk in chunks} == {"talk"}
    assert all("usage" not in chunk or chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["usage"]["cost"] == pytest.approx(COST)
    assert chunks[-1]["usage"]["latency_ms"] > 0
    plain = door.post(CHAT, {**wish, "stream_options": None}, acme)
    assert b"usage" not in plain.body, "who did not ask for it is not told"


def test_a_model_without_a_price_has_no_cost(door: Door, acme: dict[str, str]) -> None:
    reply = door.ask("free", acme)
    assert reply.headers["x-penstock-cost"] is None
    assert "cost" not in reply.json()["usage"]
    assert reply.json()["usage"]["latency_ms"] > 0
    assert float(door.billed("acme", "free", requests=1)["cost_usd"]) == 0


def test_the_ledger_has_what_was_delivered_and_nothing_else(
    door: Door, keys: Keys, upstream: OpenAIServer
) -> None:
    key = keys["counted"]
    for stream in (False, True):
        for _ in range(3):
            assert door.ask("chat", key, stream=stream).status == 200
    upstream.close()
    before = len(upstream.bodies)
    with door.streaming(CHAT, chat("wait", model="chat", max_tokens=50), key) as chunks:
        next(chunks)  # one word, and no more
    poll(lambda: len(upstream.bodies) > before)
    upstream.open()
    upstream.broken = True
    try:
        assert door.ask("chat", key).status == 502
    finally:
        upstream.broken = False

    found = door.billed("counted", "chat", requests=8)
    assert (found["ok"], found["aborted"], found["failed"], found["refused"]) == (6, 1, 1, 0)
    assert found["completion_tokens"] == 6 * 3 + 1
    assert float(found["cost_usd"]) == pytest.approx(
        found["prompt_tokens"] * 1e-6 + found["completion_tokens"] * 2e-6
    )
