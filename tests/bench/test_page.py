"""A page is one file that needs nothing else, and shows what the terminal shows."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock.bench.compare import compare, compared
from penstock.bench.embed_report import embed_fields
from penstock.bench.embedding import EmbedRun
from penstock.bench.page import page
from penstock.bench.quality import Quality
from penstock.bench.report import frame
from penstock.bench.statistics import Timing
from tests.bench.results import ENGINE, content, run


def parsed(result: dict[str, Any]) -> ElementTree.Element:
    """The page is XML too, so that what is not closed or not escaped is found here."""
    return ElementTree.fromstring(page(result).removeprefix("<!DOCTYPE html>"))


def titles(root: ElementTree.Element) -> list[str]:
    return [found.text or "" for found in root.iterfind(".//figcaption/b")]


def sweep(**load: str) -> dict[str, Any]:
    runs = [run("sweep", wall, **dict.fromkeys(load, number)) for wall, number in ((4, 1), (2, 2), (2.1, 40))]
    return content(runs, kind="sweep", model="m")


def comparison() -> dict[str, Any]:
    sides = [content([run(wall=wall) for wall in walls]) for walls in ((1.0, 1.1), (2.0, 2.1))]
    subject = {"names": ["old", "new"], "interleaved": True}
    return frame("compare", ["penstock"], subject, None) | compared(sides, compare(*sides))


def embedding() -> dict[str, Any]:
    runs = [
        EmbedRun(where="engine", mode="one by one", texts=2, tokens=9, seconds=[2.0]),
        EmbedRun(where="engine", mode="batched", texts=2, tokens=9, seconds=[1.0, 0.5, 2.0]),
    ]
    return frame("embed", ["penstock"], {"model": "m"}, None) | embed_fields(runs)


def quality(*, whole: bool = True) -> dict[str, Any]:
    runs = [
        {"precision": name, "perplexity": value, "tokens": 9, "seconds": 1.0, "interrupted": False}
        for name, value in (("int8", 10.2), ("float32", 10.0))
    ]
    found = Quality(
        tokens=9,
        pieces=3,
        perplexity=10.2,
        reference_perplexity=10.0,
        difference=0.02,
        low=0.01,
        high=0.5,
        absolute_difference=0.1,
        agreement=0.9,
        divergence=0.01,
    )
    subject = {"model": "m", "text": "t", "context": 512}
    fields = {"runs": runs, "quality": asdict(found), "limit": 0.01, "within": False}
    fields |= {} if whole else {"runs": runs[:1], "quality": None, "within": None}
    return frame("quality", ["penstock"], subject, None) | fields


def test_embeddings_are_drawn_as_bars_with_the_range_of_their_repeats() -> None:
    root = parsed(embedding())
    assert titles(root) == ["Texts a second"]
    assert [found.text for found in root.iterfind(".//text[@class='bar-value']")] == ["1.00"]
    assert [found.text for found in root.iterfind(".//text[@class='bar-value best']")] == ["2.00"]
    assert len(root.findall(".//path[@class='whisker']")) == 1


def test_perplexities_are_drawn_as_bars_with_the_interval_of_the_difference() -> None:
    root = parsed(quality())
    assert titles(root) == ["Perplexity"]
    assert [found.text for found in root.iterfind(".//text[@class='bar-name']")] == ["int8", "float32"]
    assert len(root.findall(".//path[@class='whisker']")) == 1
    assert parsed(quality(whole=False)).findall(".//path[@class='whisker']") == []


@pytest.mark.parametrize(
    "result",
    [
        content([run(requests=3, slo={"ttft": 1.0})], model="m", price_per_hour=1.0),
        content([run("continuous", engine=ENGINE), run("static", engine=ENGINE)], kind="offline"),
        content([run(timings=[Timing(0.0, wanted=1, input_tokens=1, error="no")])]),  # nothing to draw
        content([]),
        sweep(concurrency="x"),
        sweep(rate="x"),
        comparison(),
        embedding(),
        quality(),
        quality(whole=False),
    ],
    ids=[
        "serve",
        "offline",
        "failed",
        "empty",
        "sweep of clients",
        "sweep of rates",
        "compare",
        "embed",
        "quality",
        "half a quality",
    ],
)
def test_a_page_is_well_formed_and_needs_nothing_else(result: dict[str, Any]) -> None:
    root = parsed(result)
    names = {element.tag for element in root.iter()}
    assert not names & {"script", "link", "img", "iframe", "object"}
    text = page(result)
    assert not re.search(r"url\(|@import|(src|href)=", text)
    assert "NaN" not in text
    assert root.get("lang") == "en"
    assert root.findtext(".//h1")
    for drawing in root.iterfind(".//figure/svg"):
        assert drawing.get("role") == "img"
        assert drawing.get("aria-label")
    for table in root.iterfind(".//table"):
        assert table.findtext("caption")
        assert all(cell.get("scope") == "col" for cell in table.iterfind("thead/tr/th"))


def test_what_a_server_says_cannot_become_markup() -> None:
    failed = [Timing(0.0, wanted=1, input_tokens=1, error="<script>alert('1')</script>")]
    text = page(content([run(timings=failed)], model='"><script>x'))
    assert "<script>" not in text
    assert "&lt;script&gt;alert" in text


def test_a_server_s_page_has_its_distributions_and_its_requests_over_time() -> None:
    root = parsed(content([run(requests=3, slo={"ttft": 1.0})]))
    assert titles(root) == [
        "TTFT: distribution",
        "ITL: distribution",
        "End to end: distribution",
        "W2 online: requests over time",
    ]
    first = root.find(".//figure/svg")
    assert first is not None
    assert [limit.text for limit in first.iterfind("*[@class='limit-name']")] == ["SLO"]
    timeline = root.findall(".//figure/svg")[-1]
    assert len(timeline.findall("*[@class='answer']")) == 3


def test_a_sweep_s_page_has_throughput_and_latency_with_the_saturation_marked() -> None:
    root = parsed(sweep(concurrency="x"))
    assert titles(root)[:3] == [
        "Throughput against load",
        "TTFT against throughput",
        "End to end against throughput",
    ]
    drawing = root.find(".//figure/svg")
    assert drawing is not None
    assert len(drawing.findall("circle")) == 3
    assert [limit.text for limit in drawing.iterfind("*[@class='limit-name']")] == ["W2 saturated"]
    assert "clients (log scale)" in "".join(drawing.itertext())


def test_a_comparison_s_page_has_a_bar_for_each_side_with_its_range() -> None:
    root = parsed(comparison())
    drawing = root.find(".//figure/svg")
    assert drawing is not None
    assert [name.text for name in drawing.iterfind("*[@class='bar-name']")] == ["A: old", "B: new"]
    assert len(drawing.findall("*[@class='whisker']")) == 2
    # How each side was measured is told too.
    assert page(comparison()).count("penstock bench serve --salt") == 2


def test_answers_that_were_not_good_are_at_the_top_and_red_over_time() -> None:
    timings = [
        Timing(0.0, wanted=2, input_tokens=5, tokens_at=[0.5, 1.0], output_tokens=2, ended=1.0),
        Timing(0.0, wanted=2, input_tokens=5, error="no", ended=0.5),
        Timing(0.0, wanted=2, input_tokens=5, tokens_at=[0.5], output_tokens=1, ended=1.0),
    ]
    root = parsed(content([run(timings=timings)]))
    alarm = root.find(".//div[@class='card alarm']")
    assert alarm is not None
    assert "".join(alarm.itertext()) == "not good2 of 3"
    assert len(root.findall(".//circle[@class='failure']")) == 1
    assert len(root.findall(".//line[@class='answer bad']")) == 1


def test_many_runs_are_drawn_up_to_what_can_be_told_apart() -> None:
    runs = [replace(run(), workload=f"W{number}") for number in range(9)]
    text = page(content(runs))
    assert "The first 6 of 9 runs." in text
