"""Two results are compared only where they did the same work, and differences claimed only with reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from penstock.bench.compare import Comparison, compare, compared, comparisons_of, turns, worse
from penstock.bench.items import items
from penstock.bench.report import frame, tables
from penstock.bench.statistics import Run, Timing
from penstock.bench.tables import Note, Table
from penstock.errors import ConfigError
from tests.bench.results import content, run


def side(*walls: float, **changes: Any) -> dict[str, Any]:
    """Runs of 4 requests with 2 tokens each: 8 / wall output tokens/s."""
    return content([run(wall=wall, requests=4, **changes) for wall in walls])


def figure(comparisons: list[Comparison], name: str) -> Comparison:
    return next(one for one in comparisons if one.figure == name)


def shown(a: dict[str, Any], b: dict[str, Any], comparisons: list[Comparison], **subject: Any) -> str:
    named = {"names": ["old", "new"], "interleaved": True, **subject}
    found = frame("compare", ["penstock"], named, None) | compared([a, b], comparisons)
    texts = []
    for item in items(found):
        if isinstance(item, Note):
            texts.append(item.text)
        else:
            assert isinstance(item, Table)
            cells = (cell if isinstance(cell, str) else cell.text for row in item.rows for cell in row)
            texts.append(" | ".join((item.title, *cells)))
    return "\n".join(texts)


def test_a_ratio_is_of_the_medians_with_the_range_beside_it() -> None:
    found = compare(side(4.0, 2.0, 1.0), side(0.5, 0.25, 0.4))
    rate = figure(found, "output_tokens_per_second")
    assert (rate.a.median, rate.a.min, rate.a.max, rate.a.repeats) == (4.0, 2.0, 8.0, 3)
    assert rate.ratio == pytest.approx(20.0 / 4.0)
    assert (rate.better, rate.beyond_spread) == ("B", True)


def test_less_is_better_for_a_latency() -> None:
    found = figure(compare(side(1.0, 1.1), side(2.0, 2.1)), "ttft_p50")
    assert found.a.median == pytest.approx(525.0)  # ms
    assert found.better == "A"
    assert found.worse_by() == pytest.approx(1025 / 525 - 1)


def test_ranges_that_touch_are_within_the_spread() -> None:
    assert figure(compare(side(1.0, 2.0), side(2.0, 3.0)), "wall_seconds").beyond_spread is False


def test_of_one_run_the_spread_is_not_known() -> None:
    found = compare(side(1.0), side(9.0, 10.0))
    assert figure(found, "wall_seconds").beyond_spread is None
    text = shown(side(1.0), side(9.0, 10.0), found)
    assert "the spread is not known. Repeat with -r 3" in text
    assert "A?" in text


def test_a_figure_that_a_run_lacks_is_named_and_the_others_keep_their_spread() -> None:
    at_once = [Timing(0.0, wanted=2, input_tokens=5, tokens_at=[1.0, 1.0], output_tokens=2, ended=1.0)]
    lacking = content([run(wall=1.0), run(wall=1.1, timings=at_once)])
    whole = content([run(wall=1.0), run(wall=1.1)])
    found = compare(lacking, whole)
    lacks = [one.label for one in found if one.beyond_spread is None]
    assert lacks
    assert figure(found, "wall_seconds").beyond_spread is not None
    text = shown(lacking, whole, found)
    assert "2 and 2 repeats" in text
    assert f"Not in enough runs for a spread: {', '.join(lacks)}." in text
    assert "One run of a side alone" not in text


def test_equal_figures_have_no_winner() -> None:
    found = figure(compare(side(2.0, 2.0), side(2.0, 2.0)), "wall_seconds")
    assert (found.ratio, found.better, found.beyond_spread) == (1.0, None, False)


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        (side(1.0), side(1.0, workload="W3"), r"no run in common: W2 \(at once, online\) against W3"),
        (side(1.0), side(1.0, concurrency=4), "no run in common: .* against W2 .4 clients"),
        (side(1.0), content([run(requests=3)]), "had 4 requests in old and 3 in new: not the same work"),
        (side(1.0), {"kind": "embed"}, "new is a result of `penstock bench embed`, which cannot be compared"),
        (side(1.0), content([run(requests=4)], kind="offline"), "they do not measure the same"),
    ],
)
def test_other_work_is_refused_with_a_sentence(a: dict[str, Any], b: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        compare(a, b, ("old", "new"))


def longer(what: str, tokens: int) -> dict[str, Any]:
    return content([replace(run(requests=4), **{f"{what}_tokens": tokens})])


@pytest.mark.parametrize("what", ["input", "output"])
def test_other_lengths_are_refused_and_a_token_of_a_template_is_not(what: str) -> None:
    with pytest.raises(ConfigError, match=f"had 100.0 {what} tokens a request in A and 110.0 in B"):
        compare(longer(what, 400), longer(what, 440))
    assert compare(longer(what, 400), longer(what, 404))


def cut_off() -> Run:
    timings = [Timing(0.0, wanted=2, input_tokens=5, cut_off=True)]
    return run(timings=timings)


def test_a_run_that_was_cut_off_is_left_out() -> None:
    whole = [run(wall=wall, requests=4) for wall in (1.0, 1.1)]
    found = compare(content([*whole, cut_off()]), side(1.0, 1.1))
    assert figure(found, "wall_seconds").a.repeats == 2


def test_a_comparison_stopped_too_early_shows_what_was_measured() -> None:
    text = shown(side(2.0), content([]), [])
    assert "there is nothing to compare" in text
    assert "Throughput | W2 online | at once | 2.00" in text


def test_worse_by_more_than_allowed_is_found() -> None:
    found = compare(side(1.00, 1.01), side(1.10, 1.11))
    assert {one.figure for one in worse(found, 5)} == {
        "output_tokens_per_second",
        "decode_tokens_per_second",
        "ttft_p50",
        "e2e_p50",
    }
    assert worse(found, 15) == []
    assert worse(compare(side(1.10, 1.11), side(1.00, 1.01)), 0) == []


def test_worse_within_the_spread_is_no_reason_to_fail() -> None:
    assert worse(compare(side(1.0, 2.0, 3.0), side(2.0, 2.5, 4.0)), 0) == []


def test_failures_where_there_were_none_are_worse_by_any_measure() -> None:
    failing = [replace(run(requests=4), errors=1) for _ in range(2)]
    found = worse(compare(content([run(requests=4)] * 2), content(failing)), 50)
    assert [one.figure for one in found] == ["failed"]


def test_turns_are_interleaved() -> None:
    assert [side for side, _ in turns(3)] == [0, 1, 1, 0, 0, 1]
    assert sorted(turns(2)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_comparison_is_read_as_it_was_written() -> None:
    found = compare(side(1.0, 1.1), side(2.0, 2.1))
    assert comparisons_of(compared([], found)) == found


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    slow, fast = [
        [run(wall=wall, requests=4, slo={"ttft": 900.0}) for wall in walls]
        for walls in ((900, 990.5), (800, 950.5))
    ]
    found = compare(content(slow), content(fast))
    data = frame("compare", ["penstock"], {"names": ["old", "new"], "interleaved": True}, None)
    with open("/dev/null", "w") as nowhere:
        console = Console(width=80, record=True, file=nowhere)
        for table in tables(data | compared([content(slow), content(fast)], found)):
            console.print(table)
    text = console.export_text()
    assert "…" not in text
    assert "neither" in text
    assert "one figure in 3 has a winner by chance" in " ".join(text.split())


def test_the_doubts_of_both_sides_are_shown() -> None:
    failing = [replace(run(requests=4), errors=1, first_error="Out of cheese.") for _ in range(2)]
    doubtful = [replace(run(requests=4), short=3, warnings=["It was late."]) for _ in range(2)]
    a, b = content(failing), content([*doubtful, cut_off()])
    text = shown(a, b, compare(a, b))
    assert "A, old, W2 online, first error: Out of cheese." in text
    assert "B, new, W2 online: 6 answers had another number of tokens" in text
    assert "B, new, W2 online: It was late." in text
    assert "cut off" not in text  # such a run is in no ratio


def test_what_else_changed_is_said() -> None:
    a, b = side(1.0, 1.1), side(1.0, 1.1)
    b["machine"] = b["machine"] | {"processor": "Abacus"}
    text = shown(a, b, compare(a, b), interleaved=False)
    assert "Another processor" in text
    assert "measures in turns" in text
