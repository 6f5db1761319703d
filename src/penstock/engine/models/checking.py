"""Whether a file holds the tensors that its description asks for, and all that is wrong if it does not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from penstock.errors import ModelError

Shape = tuple[int, ...]
# Entries of each kind in one complaint, and characters of an entry: a file may hold anything.
MAX_ENTRIES, MAX_ENTRY = 40, 200
# A layer's number, and an expert's.
_NUMBER = re.compile(r"(?<=\.)(0|[1-9]\d{0,5})(?=\.)")


def check_shapes(
    path: Path,
    name: str,
    expected: Mapping[str, Shape],
    found: Mapping[str, Shape],
    spare: tuple[str, ...] = (),
) -> None:
    """Raise ModelError unless the file has exactly what is expected, and perhaps names that begin with one
    of `spare`: any other would change the answers of the model it belongs to."""
    missing = [stored for stored in expected if stored not in found]
    misshapen: dict[tuple[Shape, Shape], list[str]] = {}
    for stored, shape in expected.items():
        if stored in found and found[stored] != shape:
            misshapen.setdefault((found[stored], shape), []).append(stored)
    extra = sorted(stored for stored in found if stored not in expected and not stored.startswith(spare))
    kinds = {
        "It lacks": folded(missing),
        "Of another shape:": [
            (f"{entry} has {list(has)} instead of {list(wanted)}", count)
            for (has, wanted), names in misshapen.items()
            for entry, count in folded(names)
        ],
        "It has no place for": folded(extra),
    }
    problems = [f"{kind} {_listed(entries)}." for kind, entries in kinds.items() if entries]
    if problems:
        raise ModelError(f"{path} does not hold the {name} that it describes. {' '.join(problems)}")


def folded(names: Iterable[str]) -> list[tuple[str, int]]:
    """All names, those that differ in a layer's or an expert's number alone as one: entries, each with the
    number of names it stands for."""
    patterns: dict[tuple[str, ...], set[tuple[int, ...]]] = {}
    for name in names:
        parts = _NUMBER.split(name, maxsplit=2)
        patterns.setdefault(tuple(parts[::2]), set()).add(tuple(map(int, parts[1::2])))
    entries = []
    for texts, numbers in patterns.items():
        for ranges, count in _ranges_of(numbers):
            name = texts[0] + "".join(a + b for a, b in zip(ranges, texts[1:], strict=True))
            shown = repr(name if len(name) <= MAX_ENTRY else f"{name[: MAX_ENTRY - 3]}...")
            entries.append((shown if count == 1 else f"{shown} ({count})", count))
    return entries


def _ranges_of(numbers: Collection[tuple[int, ...]]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Sets of numbers whose products are exactly the given tuples."""
    if () in numbers:
        yield (), 1
        return
    rests: dict[int, set[tuple[int, ...]]] = {}
    for first, *rest in sorted(numbers):
        rests.setdefault(first, set()).add(tuple(rest))
    alike: dict[frozenset[tuple[int, ...]], list[int]] = {}
    for first, those in rests.items():
        alike.setdefault(frozenset(those), []).append(first)
    for shared, firsts in alike.items():
        for ranges, count in _ranges_of(shared):
            yield (_spelled(firsts), *ranges), count * len(firsts)


def _spelled(numbers: list[int]) -> str:
    """0-3,7 for 0, 1, 2, 3 and 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def _listed(entries: list[tuple[str, int]]) -> str:
    shown = ", ".join(entry for entry, _ in entries[:MAX_ENTRIES])
    rest = sum(count for _, count in entries[MAX_ENTRIES:])
    return f"{shown} and {rest} more" if rest else shown
