"""Two results beside each other: the ratio of each figure, and whether it is beyond the spread. Pure.

A is what one has, B is what one might have: a ratio is B over A. A difference is beyond the spread
when the ranges of the repeats do not touch. With one run of each the spread is not known, and nothing
is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

from penstock.bench.figures import FIGURES, Figure, Spread, grouped, identity, load, spread
from penstock.bench.result import WITH_RUNS, runs_of
from penstock.bench.run_tables import doubts, run_tables
from penstock.bench.statistics import Run
from penstock.bench.tables import Cell, Item, Note, Table, Tone, label, number
from penstock.errors import ConfigError

LENGTH_TOLERANCE = 0.02  # servers may count a token of the template more
FIGURE_OF_NAME = {figure.name: figure for figure in FIGURES}
FEWEST_FOR_SPREAD = 2  # repeats of each side


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One figure of one run on both sides."""

    run: str  # as the tables name it
    figure: str
    a: Spread
    b: Spread
    ratio: float | None  # B over A; None where A is 0
    better: str | None  # "A" or "B" by the medians; None where they are equal
    beyond_spread: bool | None  # None: a side has one run alone, so nobody knows

    @property
    def label(self) -> str:
        return FIGURE_OF_NAME[self.figure].label

    def worse_by(self) -> float:
        """By how much B is worse, as a share of A; below 0 where it is better."""
        if self.ratio is None:  # A had none of it
            return float("inf") if self.better == "A" else 0.0
        return 1 - self.ratio if FIGURE_OF_NAME[self.figure].higher_is_better else self.ratio - 1


def compare(a: dict[str, Any], b: dict[str, Any], names: tuple[str, str] = ("A", "B")) -> list[Comparison]:
    """Every figure that both have. Raises ConfigError where the two did not do the same work."""
    for content, name in zip((a, b), names, strict=True):
        if content["kind"] not in WITH_RUNS:
            raise ConfigError(
                f"{name} is a result of `penstock bench {content['kind']}`, which cannot be compared; "
                f"give results of {', '.join(WITH_RUNS)}."
            )
    if a["kind"] != b["kind"]:
        raise ConfigError(
            f"{names[0]} was measured by `penstock bench {a['kind']}` and {names[1]} by `penstock bench "
            f"{b['kind']}`: they do not measure the same; measure both by one of them."
        )
    left, right = _by_identity(a), _by_identity(b)
    both = [key for key in left if key in right]
    if not both:
        raise ConfigError(
            f"{names[0]} and {names[1]} have no run in common: {_list(left)} against {_list(right)}; "
            "measure both with the same workload and load."
        )
    found: list[Comparison] = []
    for key in both:
        _check_same_work(left[key], right[key], names)
        found += _figures(left[key], right[key])
    return found


def turns(repeats: int) -> Iterator[tuple[int, int]]:
    """Side and repeat in the order A B, B A, A B ...: what drifts on a machine meets both alike."""
    for repeat in range(repeats):
        for side in (0, 1) if repeat % 2 == 0 else (1, 0):
            yield side, repeat


def compared(sides: Sequence[dict[str, Any]], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """What the result has beside the fields that all kinds have."""
    return {"sides": list(sides), "comparisons": [asdict(one) for one in comparisons]}


def worse(comparisons: Sequence[Comparison], percent: float) -> list[Comparison]:
    """The deciding figures of B that are worse by more than `percent`, and not within the spread."""
    return [
        one
        for one in comparisons
        if FIGURE_OF_NAME[one.figure].decides
        and one.beyond_spread is not False
        and one.worse_by() > percent / 100
    ]


def compare_items(content: dict[str, Any]) -> Iterator[Item]:
    """The tables of a comparison, from what its file holds."""
    names = content["subject"]["names"]
    comparisons = comparisons_of(content)
    if not comparisons:
        yield Note("Stopped before both had a whole run: there is nothing to compare.", "bad")
        for name, side in zip(names, content["sides"], strict=True):
            if runs := runs_of(side):
                yield Note(f"{name}:", "strong")
                yield from run_tables(side, runs)
        return
    yield from _surroundings_differ(content)
    for run in dict.fromkeys(one.run for one in comparisons):
        yield _table(run, names, [one for one in comparisons if one.run == run])
    for letter, name, side in zip("AB", names, content["sides"], strict=True):
        yield from doubts(_whole(side), f"{letter}, {name}, ")
    yield from _chances(comparisons)


def comparisons_of(content: dict[str, Any]) -> list[Comparison]:
    return [
        Comparison(**{**one, "a": Spread(**one["a"]), "b": Spread(**one["b"])})
        for one in content["comparisons"]
    ]


def _figures(left: Sequence[Run], right: Sequence[Run]) -> Iterator[Comparison]:
    for figure in FIGURES:
        a, b = spread(figure, left), spread(figure, right)
        if a is None or b is None:
            continue
        yield Comparison(
            run=label(left[0]),
            figure=figure.name,
            a=a,
            b=b,
            ratio=b.median / a.median if a.median else None,
            better=_better(figure, a, b),
            beyond_spread=(
                a.max < b.min or b.max < a.min if min(a.repeats, b.repeats) >= FEWEST_FOR_SPREAD else None
            ),
        )


def _better(figure: Figure, a: Spread, b: Spread) -> str | None:
    if a.median == b.median:
        return None
    return "B" if (b.median > a.median) == figure.higher_is_better else "A"


def _by_identity(content: dict[str, Any]) -> dict[tuple[object, ...], list[Run]]:
    """A run that was cut off did other work than a whole one, and is left out."""
    return {identity(group[0]): group for group in grouped(_whole(content))}


def _whole(content: dict[str, Any]) -> list[Run]:
    return [run for run in runs_of(content) if not run.unfinished]


def _list(groups: dict[tuple[object, ...], list[Run]]) -> str:
    return ", ".join(f"{group[0].workload} ({load(group[0])}, {group[0].mode})" for group in groups.values())


def _check_same_work(left: Sequence[Run], right: Sequence[Run], names: tuple[str, str]) -> None:
    a, b = left[0], right[0]
    if a.requests != b.requests:
        raise ConfigError(
            f"{a.workload} had {a.requests} requests in {names[0]} and {b.requests} in {names[1]}: not the "
            "same work; measure both with the same workload."
        )
    for what in ("input", "output"):
        one, other = _mean_length(left, what), _mean_length(right, what)
        if one and other and abs(one / other - 1) > LENGTH_TOLERANCE:
            raise ConfigError(
                f"{a.workload} had {one:.1f} {what} tokens a request in {names[0]} and {other:.1f} in "
                f"{names[1]}: not the same work; measure both with the same lengths."
            )


def _mean_length(runs: Sequence[Run], what: str) -> float | None:
    """Tokens of a request; None where not all were answered, so that the mean is of other requests."""
    whole = next((run for run in runs if run.completed == run.requests and run.completed), None)
    if whole is None:
        return None
    return float(getattr(whole, f"{what}_tokens")) / whole.completed


def _surroundings_differ(content: dict[str, Any]) -> Iterator[Note]:
    """What else changed between the two: a ratio across machines is of the machines too."""
    a, b = content["sides"]
    for what, key in (("processor", "processor"), ("number of cores", "cores")):
        one, other = a["machine"][key], b["machine"][key]
        if one != other:
            yield Note(
                f"Another {what}: {one} in A, {other} in B. The ratios are of the machines too.", "bad"
            )
    if not content["subject"]["interleaved"]:
        yield Note(
            f"A was measured at {a['measured_at']}, B at {b['measured_at']}: what changed on the machine "
            "between is in the ratios. `penstock bench compare --url A --url B` measures in turns."
        )


def _chances(comparisons: Sequence[Comparison]) -> Iterator[Note]:
    """How much a winner means: of all orders of the repeats, two keep the sides apart."""
    known = [one for one in comparisons if one.beyond_spread is not None]
    if not known:
        yield Note("One run of a side alone: the spread is not known. Repeat with -r 3 or more.", "bad")
        return
    a, b = (min(getattr(one, side).repeats for one in known) for side in "ab")
    yield Note(
        "Neither is better where the ranges of the repeats touch. Of two equal servers, with "
        f"{a} and {b} repeats, one figure in {round(comb(a + b, a) / 2)} has a winner by chance."
    )
    # Such as the speed of answers whose tokens came all at once.
    if rare := dict.fromkeys(one.label for one in comparisons if one.beyond_spread is None):
        yield Note(f"Not in enough runs for a spread: {', '.join(rare)}.", "bad")


def _table(run: str, names: Sequence[str], comparisons: Sequence[Comparison]) -> Table:
    return Table(
        title=f"{run}: A is {names[0]}, B is {names[1]}",
        # Not the ranges themselves, which would not fit a terminal; the file and the page have them.
        head=("figure", "A", "spread", "B", "spread", "B/A", "better"),
        rows=[
            (
                one.label,
                number(one.a.median),
                _half_range(one.a),
                number(one.b.median),
                _half_range(one.b),
                Cell("-" if one.ratio is None else f"{one.ratio:.2f}x", "strong"),
                _verdict(one),
            )
            for one in comparisons
        ],
    )


def _half_range(found: Spread) -> str:
    return f"±{found.share:.1%}" if found.repeats > 1 else ""


def _verdict(one: Comparison) -> Cell:
    if one.better is None:
        return Cell("equal")
    if one.beyond_spread is False:
        return Cell("neither")
    tone: Tone = "good" if one.better == "B" else "bad"
    return Cell(one.better, tone) if one.beyond_spread else Cell(f"{one.better}?")
