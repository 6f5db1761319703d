"""Names as labels: bounded, and the same in all processes of a server."""

from __future__ import annotations

import random
from pathlib import Path

from penstock.observe.labels import LONGEST, OTHER, CappedNames


def test_the_first_names_are_themselves_and_configured_ones_always() -> None:
    names = CappedNames(0)
    names.configure(3, ["configured"])
    assert [names(name) for name in ("a", "b", "c", "configured")] == ["a", "b", OTHER, "configured"]
    names.configure(3, ["configured", "late"])
    assert [names(name) for name in ("late", "a", "b")] == ["late", "a", OTHER]


def test_a_long_name_is_cut() -> None:
    names = CappedNames(1)
    assert names("x" * 1000) == names("x" * 1000) == "x" * LONGEST
    assert names("y") == OTHER


def test_processes_that_meet_names_in_any_order_call_each_the_same(tmp_path: Path) -> None:
    file = tmp_path / "names"
    crew = [CappedNames(1000, file) for _ in range(4)]
    for names in crew:
        names.configure(1000, ["configured"])
    draw = random.Random(5)
    met = [(draw.choice(crew), f'tenant-{draw.randrange(100_000)}\n"ü') for _ in range(20_000)]
    called = {}
    for names, name in met:
        label = names(name)
        assert called.setdefault(name, label) == label, "it does not change its name, nor has it two"
    assert all(names(name) == called[name] for names in crew for _, name in met)
    assert len({label for label in called.values() if label != OTHER}) == 999
    again = CappedNames(1000, file)  # of a process that was started again
    again.configure(1000, ["configured"])
    assert all(again(name) == label for name, label in called.items())
    assert len(file.read_bytes().splitlines()) < 1100, "what has no place is not written"


def test_more_places_are_given_in_the_order_of_the_file(tmp_path: Path) -> None:
    one, two = (CappedNames(1, tmp_path / "names") for _ in range(2))
    assert [one("a"), two("b"), one("c"), two("a")] == ["a", OTHER, OTHER, "a"]
    for names in (one, two):
        names.configure(2)
    assert [two("c"), one("c"), one("b"), two("b")] == [OTHER, OTHER, "b", "b"]


def test_without_a_file_that_can_be_written_nobody_has_a_name_that_others_do_not_know(tmp_path: Path) -> None:
    names = CappedNames(10, tmp_path / "gone" / "names")
    names.configure(10, ["configured"])
    assert (names("a"), names("configured")) == (OTHER, "configured")


def test_a_line_that_is_torn_is_passed_over_and_a_file_that_is_gone_begins_anew(tmp_path: Path) -> None:
    file = tmp_path / "names"
    first = CappedNames(10, file)
    assert first("a") == "a"
    with file.open("ab") as stream:
        stream.write(b'"to"rn\n')
    second = CappedNames(10, file)
    assert [second("a"), second("b"), first("b")] == ["a", "b", "b"]
    file.unlink()
    assert [second("c"), first("c"), first("a")] == ["c", "c", "a"]
