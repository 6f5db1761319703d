"""Which tensors are missing, too many or misshapen: all of them, in bounded space."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.models.checking import MAX_ENTRIES, check_shapes, folded
from penstock.errors import ModelError


def complaint(expected: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]) -> str:
    with pytest.raises(ModelError) as caught:
        check_shapes(Path("folder"), "llama", expected, found)
    return str(caught.value)


@pytest.mark.parametrize(
    ("names", "entries"),
    [
        (["a.weight", "b.weight"], [("'a.weight'", 1), ("'b.weight'", 1)]),
        ([f"layers.{i}.x" for i in range(30)], [("'layers.0-29.x' (30)", 30)]),
        ([f"layers.{i}.x" for i in (7, 0, 1, 2, 4)], [("'layers.0-2,4,7.x' (5)", 5)]),
        ([f"l.{i}.e.{j}.w" for i in range(3) for j in range(4)], [("'l.0-2.e.0-3.w' (12)", 12)]),
        (["l.0.e.0.w", "l.0.e.1.w", "l.1.e.1.w"], [("'l.0.e.0-1.w' (2)", 2), ("'l.1.e.1.w'", 1)]),
        (["l.0.w", "l.01.w"], [("'l.0.w'", 1), ("'l.01.w'", 1)]),
        (["1.5", "1.5.6"], [("'1.5'", 1), ("'1.5.6'", 1)]),
        (["l.{}.w"], [("'l.{}.w'", 1)]),
    ],
)
def test_names_that_differ_in_numbers_alone_are_one_entry(
    names: list[str], entries: list[tuple[str, int]]
) -> None:
    assert folded(names) == entries


def test_everything_wrong_is_said_at_once() -> None:
    expected = {**{f"l.{i}.w": (2, 3) for i in range(4)}, "norm": (3,)}
    found = {"l.0.w": (2, 3), "l.1.w": (3, 2), "l.2.w": (3, 2), "l.3.w": (4,), "l.9.w": (1,)}
    assert complaint(expected, found) == (
        "folder does not hold the llama that it describes. It lacks 'norm'. Of another shape: 'l.1-2.w' (2) "
        "has [3, 2] instead of [2, 3], 'l.3.w' has [4] instead of [2, 3]. It has no place for 'l.9.w'."
    )


def test_a_files_own_names_do_not_make_the_complaint_endless() -> None:
    many = {f"{'x' * 100_000}{number}.weight": (1,) for number in range(MAX_ENTRIES + 7)}
    odd = {f"layer.{number}.weight": (1,) for number in range(0, 100_000, 2)}
    deep = {".1" * 5000: (1,)}
    said = complaint({}, {**many, **odd, **deep})
    assert len(said) < 20_000
    assert said.endswith(" more.")


def test_what_may_lie_beside_is_no_complaint() -> None:
    check_shapes(Path("folder"), "llama", {"a": (1,)}, {"a": (1,), "lm_head.weight": (3,)}, ("lm_head.",))
