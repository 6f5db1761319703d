"""Classes, deadlines and a full queue, end to end: a server that takes one request at a time."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.door import CHAT, HI, Door, behind, chat
from tests.server import Reply, poll
from tests.servers.gated import OpenAIServer

WAITING = 6  # requests that may wait


@pytest.fixture(scope="module")
def door(upstream: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    config = {
        "models": {"chat": behind(upstream.url, backend={"max_concurrent": 1})},
        "tenants": {"default": {"class": "interactive"}},
        "queue": {"max_requests": WAITING, "max_tokens": 100_000, "wait": 20},
    }
    running = Door(tmp_path_factory.mktemp("queueing"), config)
    yield running
    upstream.open()
    running.stop()
    assert "Traceback" not in Path(running._log.name).read_text()


class Line:
    """Requests that wait behind one that holds the only place."""

    def __init__(self, door: Door, upstream: OpenAIServer) -> None:
        self._door = door
        self._upstream = upstream
        self._threads: list[threading.Thread] = []
        self.replies: dict[str, Reply] = {}
        self._before = len(upstream.bodies)
        upstream.close()
        self._send("holder", chat("wait"))
        poll(lambda: len(upstream.bodies) == self._before + 1)

    def add(self, name: str, headers: dict[str, str] | None = None, **fields: Any) -> None:
        """One more that waits: when this returns it is queued, or somebody was told that there is no room."""
        waiting, answered = self.waiting(), len(self.replies)
        self._send(name, chat(name, **fields), headers)
        poll(lambda: self.waiting() > waiting or len(self.replies) > answered)

    def waiting(self) -> float:
        return self._door.metric("penstock_queue_requests")

    def order(self) -> list[str]:
        """Let them all go; who was answered, in the order in which the server got them."""
        self._upstream.open()
        for thread in self._threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in self._threads)
        return [body["messages"][-1]["content"] for body in self._upstream.bodies[self._before + 1 :]]

    def _send(self, name: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        def ask() -> None:
            self.replies[name] = self._door.post(CHAT, {"model": "chat", **body}, headers)

        self._threads.append(threading.Thread(target=ask))
        self._threads[-1].start()


@pytest.fixture
def line(door: Door, upstream: OpenAIServer) -> Iterator[Line]:
    waiting = Line(door, upstream)
    yield waiting
    waiting.order()


def test_who_is_urgent_goes_first(line: Line) -> None:
    line.add("flex", service_tier="flex")
    line.add("batch", {"x-penstock-class": "batch"})
    line.add("default", service_tier="default")
    line.add("standard", {"X-Penstock-Class": " Standard "})
    line.add("auto", service_tier="auto")
    line.add("nothing")
    assert line.order() == ["auto", "nothing", "default", "standard", "flex", "batch"]
    assert {reply.status for reply in line.replies.values()} == {200}


def test_the_header_decides_over_the_body(line: Line) -> None:
    line.add("first", {"x-penstock-class": "batch"}, service_tier="priority")
    line.add("second", service_tier="default")
    assert line.order() == ["second", "first"]


@pytest.mark.parametrize("tier", ["fast", "", "AUTO", "x" * 5000, "\u00e9"])
def test_an_unknown_tier_is_refused(door: Door, tier: str) -> None:
    reply = door.ask("chat", service_tier=tier)
    assert (reply.status, reply.error["param"]) == (400, "service_tier")
    assert len(reply.error["message"]) < 300


@pytest.mark.parametrize("given", ["urgent", "", "batch,interactive", "x" * 5000])
def test_an_unknown_class_is_refused(door: Door, given: str) -> None:
    reply = door.post(CHAT, {"model": "chat", **HI}, {"x-penstock-class": given})
    assert (reply.status, reply.error["param"]) == (400, "x-penstock-class")


@pytest.mark.parametrize(
    "given",
    ["0", "-1", "1.5", "soon", "", "1e3", "+5", "٣", "1" * 13, "000000000001" + "9" * 20,
     "0" * 12 + "9" * 5000, "86400001", "5 ms", "nan", "inf", "0x10"],
)  # fmt: skip
def test_a_deadline_that_is_none_is_refused(door: Door, given: str) -> None:
    sent = given.encode().decode("latin-1")  # as it is, byte by byte
    reply = door.post(CHAT, {"model": "chat", **HI}, {"x-penstock-deadline-ms": sent})
    assert (reply.status, reply.error["param"]) == (400, "x-penstock-deadline-ms"), reply.body


@pytest.mark.parametrize("given", ["1000", " 5000 ", "86400000", "000002000"])
def test_a_deadline_that_is_far_enough_changes_nothing(door: Door, given: str) -> None:
    assert door.post(CHAT, {"model": "chat", **HI}, {"x-penstock-deadline-ms": given}).status == 200


def test_whose_turn_does_not_come_in_time_is_told_when_to_come_again(line: Line) -> None:
    began = time.monotonic()
    line.add("late", {"x-penstock-deadline-ms": "150"})
    poll(lambda: "late" in line.replies)
    assert time.monotonic() - began > 0.15
    reply = line.replies["late"]
    assert (reply.status, reply.error["code"]) == (503, "deadline_exceeded")
    assert int(reply.headers["retry-after"]) >= 1
    assert line.order() == []


def test_a_deadline_that_cannot_be_kept_is_refused_at_once(door: Door, upstream: OpenAIServer) -> None:
    """It is known how fast the queue drains once it has drained for a while."""
    upstream.open()
    upstream.delay = 0.1
    enough = threading.Event()

    def keep_asking() -> None:
        while not enough.is_set():
            assert door.ask("chat").status == 200

    def refused_at_once() -> bool:
        """Not when its deadline had passed: it is told how long it would have waited."""
        reply = door.post(CHAT, {"model": "chat", **HI}, {"x-penstock-deadline-ms": "10"})
        assert (reply.status, reply.error["code"]) == (503, "deadline_exceeded")
        assert int(reply.headers["retry-after"]) >= 1
        return "would wait about" in reply.error["message"]

    before = len(upstream.bodies)
    threads = [threading.Thread(target=keep_asking) for _ in range(WAITING)]  # one is served, the others wait
    for thread in threads:
        thread.start()
    try:
        poll(lambda: len(upstream.bodies) > before + WAITING)
        poll(refused_at_once)
    finally:
        enough.set()
        for thread in threads:
            thread.join()
        upstream.delay = 0.0


def test_a_full_queue_refuses_and_the_urgent_push_out_the_others(door: Door, line: Line) -> None:
    for number in range(WAITING):
        line.add(f"batch{number}", service_tier="flex")
    refused = door.ask("chat", service_tier="flex")
    assert (refused.status, refused.error["code"]) == (429, "queue_full")
    assert int(refused.headers["retry-after"]) >= 1
    assert int(refused.headers["retry-after-ms"]) >= 1
    line.add("urgent")
    poll(lambda: f"batch{WAITING - 1}" in line.replies)
    pushed = line.replies[f"batch{WAITING - 1}"]
    assert (pushed.status, pushed.error["code"]) == (429, "queue_full")
    assert line.order() == ["urgent", *(f"batch{number}" for number in range(WAITING - 1))]


def test_tokens_fill_a_queue_as_well(door: Door, line: Line) -> None:
    line.add("large", service_tier="flex", max_tokens=90_000)
    refused = door.ask("chat", service_tier="flex", max_tokens=20_000)
    assert (refused.status, refused.error["code"]) == (429, "queue_full")
    line.add("small", service_tier="flex", max_tokens=1)
    assert line.order() == ["large", "small"]


def test_one_who_leaves_the_line_is_not_sent_on(door: Door, line: Line) -> None:
    connection = http.client.HTTPConnection(door.host, door.port)
    waiting = line.waiting()
    headers = {"Content-Type": "application/json"}
    connection.request("POST", CHAT, json.dumps(chat("gone", model="chat")), headers)
    poll(lambda: line.waiting() > waiting)
    connection.close()
    poll(lambda: line.waiting() == waiting)
    line.add("stays")
    assert line.order() == ["stays"]


def test_refusals_of_the_queue_are_refusals_in_the_ledger(door: Door, line: Line) -> None:
    def refused() -> int:
        return sum(int(row["refused"]) for row in door.usage())

    before = refused()
    line.add("late", {"x-penstock-deadline-ms": "60"})
    poll(lambda: "late" in line.replies)
    line.order()
    poll(lambda: refused() == before + 1)


def test_an_answer_that_does_not_begin_in_time_is_not_waited_for(door: Door, upstream: OpenAIServer) -> None:
    upstream.close()
    try:
        body = {"model": "chat", "messages": [{"role": "user", "content": "wait"}]}
        reply = door.post(CHAT, body, {"x-penstock-deadline-ms": "200"})
    finally:
        upstream.open()
    assert reply.status == 503
    assert reply.error["code"] == "deadline_exceeded"
    assert "retry-after" in reply.headers
