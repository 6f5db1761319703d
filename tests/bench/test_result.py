"""A result is read again as it was written; anything else is refused with what to do."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from penstock.bench.ceilings import Ceilings
from penstock.bench.compare import Comparison
from penstock.bench.embedding import EmbedRun
from penstock.bench.figures import FIGURES, Spread
from penstock.bench.quality import Quality
from penstock.bench.result import KINDS, SCHEMA, read_result, runs_of
from penstock.bench.statistics import Distribution, Goodput, Run, Sample
from penstock.errors import ConfigError
from tests.bench.results import content, run


def written(folder: Path, data: Any) -> Path:
    path = folder / "result.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    runs = [run(requests=3, slo={"ttft": 1.0}), run("sweep", concurrency=4)]
    result = read_result(written(tmp_path, content(runs)))
    assert result["schema"] == SCHEMA
    assert runs_of(result) == runs


def test_a_field_of_a_later_version_does_no_harm(tmp_path: Path) -> None:
    data = content([run()]) | {"news": 1}
    data["runs"][0]["news"] = 1
    assert runs_of(read_result(written(tmp_path, data))) == [run()]


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in content([run()]).items() if name not in names}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("{", "is not JSON; give a file"),
        ("[1]", "is not a result of `penstock bench`"),
        ({"kind": "serve"}, "is not a result of `penstock bench`"),
        (without("schema"), r"has version 1 of .* reads version 2; measure again, or use .* \(\d"),
        (content([run()]) | {"schema": 3}, "has version 3"),
        (content([run()]) | {"schema": "2"}, "has version '2'"),
        (content([run()]) | {"kind": "party"}, "has the kind 'party'; a result is one of offline"),
        (content([run()]) | {"kind": ["x"]}, "has the kind"),
        (without("runs"), "is damaged: it has no 'runs'; measure again"),
        (without("price_per_hour"), "is damaged: it has no 'price_per_hour'"),
        (content([run()]) | {"price_per_hour": "much"}, "is damaged: .*price_per_hour"),
        (content([run()]) | {"kind": "sweep"}, "is damaged: it has no 'saturation'"),
        (content([run()], kind="sweep") | {"saturation": [1]}, "is damaged: .*saturation"),
        (without("machine"), "is damaged: .*missing required field `machine`"),
        (content([run()]) | {"machine": 5}, "is damaged: .*machine"),
        (content([run()]) | {"ceilings": {"device": "cpu"}}, "is damaged: .*ceilings"),
        (content([run()]) | {"runs": [{"workload": "W1"}]}, "is damaged: .*missing required field"),
        (content([run()]) | {"runs": 5}, "is damaged"),
        (content([run()]) | {"kind": "compare", "sides": [5, 6], "comparisons": []}, "A side of .* is not"),
    ],
)
def test_another_file_is_refused_with_a_sentence(tmp_path: Path, data: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_result(written(tmp_path, data))


@pytest.mark.parametrize(
    "names",
    [
        *([field.name for field in fields(kind)] for kind in (Run, Distribution, Goodput, Sample)),
        *(
            [field.name for field in fields(kind)]
            for kind in (Ceilings, Comparison, Spread, EmbedRun, Quality)
        ),
        [*content([run()], kind="sweep"), *KINDS, *(name for needed in KINDS.values() for name in needed)],
        [figure.name for figure in FIGURES],
    ],
    ids=lambda names: names[0],
)
def test_every_field_is_documented(names: list[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmarking.md").read_text()
    assert [name for name in names if f"`{name}`" not in page] == []


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json cannot be read: No such file"):
        read_result(tmp_path / "nowhere.json")
