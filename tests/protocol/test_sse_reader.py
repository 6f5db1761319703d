"""Events out of a body that is cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol import sse_reader
from penstock.protocol.sse_reader import Event, EventError, EventReader

LINE = st.binary(max_size=8).filter(lambda line: not {10, 13} & set(line))
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def test_names_comments_and_data_of_several_lines() -> None:
    body = b": hello\n\nevent: a\ndata: 1\ndata:2\nid: 7\n\ndata: 3\n\nevent: lost\n\n"
    assert EventReader().feed(body) == [Event(b"a", b"1\n2"), Event(b"", b"3")]


def test_an_event_without_its_end_is_not_given() -> None:
    reader = EventReader()
    assert reader.feed(b"data: x\n") == []
    assert reader.pending
    assert reader.feed(b"\n") == [Event(b"", b"x")]
    assert not reader.pending


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_reader, "MAX_EVENT_BYTES", 100)
    reader = EventReader()
    reader.feed(b"data: xxxxxxxx\n" * 5)
    with pytest.raises(EventError, match="larger than 100 bytes"):
        reader.feed(b"data: xxxxxxxx\n" * 5)


@given(lines=st.lists(LINE, min_size=1, max_size=5), end=ENDS, cuts=st.lists(st.integers(0, 200), max_size=8))
def test_any_cut_and_any_line_end_gives_the_same_events(
    lines: list[bytes], end: bytes, cuts: list[int]
) -> None:
    body = b"".join(b"data: " + line + end + end for line in lines) + b"data: last" + end + end + b":"
    reader, events = EventReader(), []
    places = [0, *sorted(cut % len(body) for cut in cuts), len(body)]
    for start, stop in pairwise(places):
        events += reader.feed(body[start:stop])
    assert [event.data for event in events] == [*lines, b"last"]
