"""Nearest questions of one partition, against plain arithmetic."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.gateway.cache.index import VectorIndex

WIDTH = 4
FOREVER = 1e9


def unit(*values: float) -> np.ndarray:
    vector = np.array(values, np.float32)
    return vector / np.linalg.norm(vector)


def test_the_nearest_come_first_and_the_far_not_at_all() -> None:
    index = VectorIndex(WIDTH)
    for name, vector in (
        ("far", unit(0, 1, 0, 0)),
        ("near", unit(1, 0.5, 0, 0)),
        ("next", unit(1, 0.1, 0, 0)),
    ):
        index.add(b"p", name, vector, name.encode(), FOREVER)
    found = index.nearest(b"p", unit(1, 0, 0, 0), 0.8, 0.0, 8)
    assert [each.text for each in found] == ["next", "near"]
    assert [each.key for each in found] == [b"next", b"near"]
    assert found[0].similarity > 0.99
    assert [each.text for each in index.nearest(b"p", unit(1, 0, 0, 0), 0.8, 0.0, 1)] == ["next"]


def test_what_has_ended_is_not_found_and_is_forgotten() -> None:
    index = VectorIndex(WIDTH)
    index.add(b"p", "old", unit(1, 0, 0, 0), b"old", 10.0)
    index.add(b"p", "new", unit(1, 0, 0, 0), b"new", 20.0)
    assert {each.text for each in index.nearest(b"p", unit(1, 0, 0, 0), 0.5, 9.0, 8)} == {"old", "new"}
    assert [each.text for each in index.nearest(b"p", unit(1, 0, 0, 0), 0.5, 10.0, 8)] == ["new"]
    assert len(index) == 1


def test_a_text_that_is_added_again_has_its_new_key_and_its_new_end() -> None:
    index = VectorIndex(WIDTH)
    index.add(b"p", "text", unit(1, 0, 0, 0), b"first", 10.0)
    index.add(b"p", "text", unit(1, 0, 0, 0), b"second", 20.0)
    assert [each.key for each in index.nearest(b"p", unit(1, 0, 0, 0), 0.5, 15.0, 8)] == [b"second"]
    assert len(index) == 1


def test_the_one_that_was_longest_of_no_use_makes_room() -> None:
    index = VectorIndex(WIDTH, max_rows=2)
    index.add(b"p", "a", unit(1, 0, 0, 0), b"a", FOREVER)
    index.add(b"q", "b", unit(1, 0, 0, 0), b"b", FOREVER)
    index.use(b"p", "a")
    index.add(b"p", "c", unit(1, 0, 0, 0), b"c", FOREVER)
    assert {each.text for each in index.nearest(b"p", unit(1, 0, 0, 0), 0.5, 0.0, 8)} == {"a", "c"}
    assert index.nearest(b"q", unit(1, 0, 0, 0), 0.5, 0.0, 8) == []


def test_no_partition_ever_sees_an_entry_of_another() -> None:
    """10,000 crafted pairs: the same text and vector in two partitions whose names differ in one bit."""
    draw = np.random.default_rng(5)
    index = VectorIndex(WIDTH, max_rows=2_000)
    crossed = 0
    for _ in range(10_000):
        name = draw.bytes(32)
        other = bytearray(name)
        other[draw.integers(32)] ^= 1 << draw.integers(8)
        vector = unit(*draw.normal(size=WIDTH))
        text = f"text {draw.integers(50)}"
        index.add(name, text, vector, name, FOREVER)
        crossed += len(index.nearest(bytes(other), vector, -1.0, 0.0, 8))
        assert any(each.key == name for each in index.nearest(name, vector, 0.9, 0.0, 8))
    assert crossed == 0
    assert len(index) == 2_000


class Rows(RuleBasedStateMachine):
    """The index against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.index = VectorIndex(WIDTH, max_rows=6)
        self.model: dict[tuple[bytes, str], tuple[np.ndarray, bytes]] = {}  # the latest used is last

    partitions = st.sampled_from([b"p", b"q", b"r"])
    texts = st.sampled_from([f"t{number}" for number in range(6)])

    @rule(partition=partitions, text=texts, key=st.binary(min_size=1, max_size=3))
    def add(self, partition: bytes, text: str, key: bytes) -> None:
        vector = unit(*(1 + int(digit) for digit in f"{int(text[1:]) * 37 + 1:04d}"))
        self.index.add(partition, text, vector, key, FOREVER)
        self.model.pop((partition, text), None)
        self.model[partition, text] = (vector, key)
        if len(self.model) > 6:
            del self.model[next(iter(self.model))]

    @rule(partition=partitions, text=texts)
    def remove(self, partition: bytes, text: str) -> None:
        self.index.remove(partition, text)
        self.model.pop((partition, text), None)

    @invariant()
    def every_partition_holds_what_was_put_there(self) -> None:
        assert len(self.index) == len(self.model)
        for partition in (b"p", b"q", b"r"):
            found = self.index.nearest(partition, unit(1, 1, 1, 1), -1.0, 0.0, 20)
            held = {text: key for (where, text), (_, key) in self.model.items() if where == partition}
            assert {each.text: each.key for each in found} == held


TestRows = Rows.TestCase
TestRows.settings = settings(max_examples=25, stateful_step_count=20)
