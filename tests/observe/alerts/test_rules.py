"""Every alert fires when it should and not when it should not, as promtool sees it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from penstock.config import SloConfig
from penstock.observe.alerts import thresholds
from penstock.observe.alerts.rules import alerts, render
from tests.observe.alerts.cases import CASES, MODEL, Case, judged, ttft
from tests.observe.alerts.promtool import EVERYTHING, failures, promises, unit_tests
from tests.packages import needs

# A model with a promise of its own: it is paged for at 8 s, the others at 2.
OWN = promises({"large": SloConfig(ttft=2.0), "usual": SloConfig()})
OWN_CASES = [
    Case(
        "PenstockTtftVeryHigh",
        15,
        ttft('model_name="large",class="standard"', "8", 0.985),
        ttft('model_name="large",class="standard"', "8", 0.995),
        {"model_name": "large"},
    ),
    Case(
        "PenstockTtftVeryHigh",
        15,
        ttft('model_name="m",class="standard"', "2", 0.985),
        ttft('model_name="large",class="standard"', "2", 0.5)
        | ttft('model_name="large",class="standard"', "8", 1),
        MODEL,
    ),
]
# Targets so mild that even a failure of everything burns no budget 14.4 times too fast.
MILD = promises(ttft_target=0.9, errors_target=0.5)
MILD_CASES = [
    Case(
        f"Penstock{objective.capitalize()}Burn1h",
        70,
        judged(objective, "0+95x70", "0+5x70"),
        judged(objective, "0+85x70", "0+15x70"),
        {"model_name": "m", "objective": objective},
    )
    for objective in ("ttft", "errors")
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("promtool")
    return failures(unit_tests(CASES, EVERYTHING, folder / "all"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_when_it_should_and_only_then(case: Case, found: dict[str, str]) -> None:
    assert found.get(f"{case.alert} fires") is None
    assert found.get(f"{case.alert} is silent") is None


def test_every_alert_has_a_case_and_no_case_is_left_over() -> None:
    assert {alert.name for alert in alerts(EVERYTHING)} == {case.alert for case in CASES}


def test_every_threshold_is_one_of_a_rule() -> None:
    names = {alert.name for alert in alerts(EVERYTHING) if "Burn" not in alert.name}
    assert {threshold.name for threshold in thresholds.THRESHOLDS} == names


def test_a_case_that_is_wrong_is_found(tmp_path: Path) -> None:
    """The harness itself: what should fire and does not, and what fires and should not."""
    right = next(case for case in CASES if case.alert == "PenstockOutOfMemory")
    wrong = Case(right.alert, right.at, right.silent, right.fires, right.labels)
    assert sorted(failures(unit_tests([wrong], EVERYTHING, tmp_path / "wrong"))) == [
        "PenstockOutOfMemory fires",
        "PenstockOutOfMemory is silent",
    ]


def test_a_model_with_promises_of_its_own_is_judged_by_them(tmp_path: Path) -> None:
    assert failures(unit_tests(OWN_CASES, OWN, tmp_path / "own")) == {}


def test_a_mild_target_still_pages_when_nearly_everything_is_bad(tmp_path: Path) -> None:
    assert failures(unit_tests(MILD_CASES, MILD, tmp_path / "mild")) == {}


def test_bounds_follow_the_objectives() -> None:
    strict = {alert.name: alert.expr for alert in alerts(promises(ttft_target=0.999))}
    assert "> 0.0144\n" in strict["PenstockTtftBurn1h"]
    assert "> 0.144\n" in strict["PenstockErrorsBurn1h"]
    assert "PenstockTpotBurn1h" not in strict  # nothing is promised
    fast = {alert.name: alert.expr for alert in alerts(promises(ttft=0.2))}
    assert "> 0.8\n" in fast["PenstockTtftVeryHigh"]
    assert "> 0.4\n" in fast["PenstockTtftHigh"]
    named = [alert.name for alert in alerts(promises({"m": SloConfig(ttft=3.0, tpot=0.1, e2e=10.0)}))]
    own = set(named)
    assert len(own) == len(named), "promtool takes two rules of one name for a mistake"
    assert {"PenstockTpotBurn1h", "PenstockE2eBurn1h"} <= own


def test_a_model_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(render(promises({'a"b\\c{{x}}\nd': SloConfig(ttft=1.0)})), encoding="utf-8")
    subprocess.run([needs("promtool", "prometheus"), "check", "rules", str(file)], check=True, timeout=60)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_annotations_name_only_labels_that_the_alert_has(case: Case) -> None:
    for alert in alerts(EVERYTHING):
        if alert.name == case.alert:
            named = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.action))
            assert named <= set(case.labels)
            assert alert.summary.endswith(".")
            assert alert.action.endswith((".", "?"))


def test_a_burn_alert_says_in_words_what_is_wrong() -> None:
    said = {alert.name: alert.summary for alert in alerts(promises(ttft_target=0.995))}
    who = "{{ $value | humanizePercentage }} of the requests for {{ $labels.model_name }}"
    assert said["PenstockTtftBurn1h"] == (
        f"{who} got their first token too late, or not at all, in the last hour; 0.5% may."
    )
    assert said["PenstockErrorsBurn3d"] == f"{who} failed or were refused in the last 3 days; 1% may."
