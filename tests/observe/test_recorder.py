"""What becomes of a record when its request has ended: everybody hears of it, and nobody can spoil it."""

from __future__ import annotations

import time

import pytest

from penstock.observe.recent import Recent
from penstock.observe.record import RequestRecord
from penstock.observe.recorder import MOST_UNTOLD, Recorder


def record(id: str = "r", tenant: str = "acme", *, inside: bool = False) -> RequestRecord:
    return RequestRecord(
        id, "createChatCompletion", time.monotonic(), time.time(), tenant=tenant, inside=inside
    )


class Broken:
    calls = 0

    def finished(self, record: RequestRecord) -> None:
        self.calls += 1
        raise RuntimeError("a bug")


def test_a_listener_that_raises_is_logged_once_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    broken, recent = Broken(), Recent(10)
    recorder = Recorder([broken, recent])
    for number in range(3):
        recorder.finish(record(str(number)))
    recorder.tell()
    recorder.tell()
    assert broken.calls == 3
    assert [each.id for each in recent] == ["2", "1", "0"]
    [line] = caplog.records
    assert "Broken failed on request 0" in line.getMessage()


def test_only_the_last_are_remembered_and_fewer_after_a_change() -> None:
    recent = Recent(3)
    for number in range(5):
        recent.finished(record(str(number)))
    assert [each.id for each in recent] == ["4", "3", "2"]
    recent.resize(2)
    assert [each.id for each in recent] == ["4", "3"]
    recent.resize(0)
    recent.finished(record())
    assert len(recent) == 0


def test_strangers_and_the_server_itself_are_not_remembered() -> None:
    recent = Recent(3)
    recent.finished(record("client"))
    recent.finished(record("stranger", tenant=""))
    recent.finished(record("own", inside=True))
    assert [each.id for each in recent] == ["client"]


def test_a_listener_may_come_and_go() -> None:
    recorder, recent = Recorder(), Recent(3)
    recorder.add(recent)
    recorder.finish(record("before"))
    recorder.add(other := Recent(3))
    recorder.finish(record("between"))
    recorder.remove(recent)
    recorder.finish(record("after"))
    recorder.tell()
    assert [each.id for each in recent] == ["between", "before"]
    assert [each.id for each in other] == ["after", "between"]


def test_nobody_has_to_ask_for_long_to_hear_of_many() -> None:
    recorder = Recorder([recent := Recent(MOST_UNTOLD)])
    for _ in range(MOST_UNTOLD - 1):
        recorder.finish(record())
    assert len(recent) == 0
    recorder.finish(record())
    assert len(recent) == MOST_UNTOLD
