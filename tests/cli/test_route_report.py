"""`penstock route report`: the router's books for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.aio.books import RouteTally
from penstock.aio.monitor import Change, Rollout
from penstock.cli.app import run
from penstock.cli.route.money import dollars, exact
from penstock.gateway.store import Database
from penstock.gateway.store.learning import LearningTable
from penstock.gateway.store.routes import RouteTable
from penstock.gateway.store.usage import DOLLAR

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))

    def run_report(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert run(["route", "report", *arguments]) == code
        output = capsys.readouterr()
        return output.out, output.err

    return run_report


def simple(requests: int) -> RouteTally:
    """Each costs a cent against a dollar of the expert's; the monitor has looked at a tenth."""
    return RouteTally(
        requests=requests,
        chosen=requests,
        cost=requests * DOLLAR // 100,
        expert_cost=requests * DOLLAR,
        quality=requests * 900_000,
        expert_quality=requests * 950_000,
        weighed=requests,
        would_cost=requests * DOLLAR // 100,
        would_quality=requests * 900_000,
        classifier_cost=requests * 1_000_000,
        monitor_cost=requests * DOLLAR // 10,
        as_good=requests // 10 - 1,
        worse=1,
    )


def expert(weighed: int) -> RouteTally:
    return RouteTally(weighed=weighed, would_cost=weighed * DOLLAR, would_quality=weighed * 950_000)


@pytest.fixture
def january(tmp_path: Path) -> None:
    with closing(Database(tmp_path / "home" / "state")) as database:
        RouteTable(database).add(
            {
                ("acme", "2026-01-30", "simple"): simple(100),
                ("acme", "2026-01-30", "expert"): expert(100),
                ("acme", "2026-01-31", "simple"): simple(300),
                ("acme", "2026-01-31", "expert"): expert(300),
                ("zoo", "2026-01-31", "expert"): RouteTally(pinned=2, pinned_cost=5 * DOLLAR),
            }
        )


def test_help_has_examples(report: Run) -> None:
    assert "penstock route report --by day" in report("--help")[0].split("Examples")[1]


def test_a_month_is_shown_by_tenant_then_by_tier_then_in_words(report: Run, january: None) -> None:
    out, _ = report("--since", "2026-01-01", "--until", "2026-01-31")
    lines = [line.split() for line in out.splitlines()]
    assert " ".join(lines[2]) == ("TENANT REQUESTS SPENT ROUTING EXPERT MIXTURE NET SAVED PREDICTED MEASURED")
    assert lines[3][:8] == ["acme", "400", "$4.00", "$40.0004", "$400.00", "$4.00", "$355.9996", "89.0%"]
    assert lines[3][8] == "94.7%"  # 0.90 of 0.95
    assert lines[3][9] == "95.0%"  # 38 of 40
    assert lines[4][:2] == ["zoo", "0"]
    assert lines[5][0] == "TOTAL"
    tiers = {line[0]: line for line in lines[7:10]}
    assert tiers["simple"][1:3] == ["400", "100.0%"]
    assert tiers["expert"][1] == "0"
    assert "Saved $355.9996 net (89.0% of always asking the expert): $396.00 less $0.0004" in out
    assert "Against tiers by lot, at the same predicted quality: -$40.0004 net" in out
    assert "2 requests had their tier pinned ($5.00)" in out


def test_the_cheapest_tier_comes_first(report: Run, january: None) -> None:
    found = json.loads(report("--since", "2026-01-01", "--json")[0])
    assert [row["tier"] for row in found["tiers"]] == ["simple", "expert"]


def test_json_has_exact_amounts_and_adds_up(report: Run, january: None) -> None:
    found = json.loads(report("--since", "2026-01-01", "--by", "day", "--json")[0])
    assert [(row["day"], row["requests"], row["net_saving_usd"]) for row in found["rows"]] == [
        ("2026-01-30", 100, "88.9999"),
        ("2026-01-31", 300, "266.9997"),
    ]
    total = found["total"]
    assert total["net_saving_usd"] == "355.9996"
    assert total["measured"]["verdicts"] == 40
    assert total["measured"]["low"] < total["measured"]["share"] == 0.95 < total["measured"]["high"]
    assert total["predicted_share_of_expert"] == pytest.approx(0.9 / 0.95, abs=1e-6)


def test_rows_by_tier_and_for_one_tenant_and_day(report: Run, january: None) -> None:
    found = json.loads(report("--day", "2026-01-31", "--tenant", "acme", "--by", "tenant,tier", "--json")[0])
    assert [(row["tenant"], row["tier"], row["requests"]) for row in found["rows"]] == [
        ("acme", "expert", 0),
        ("acme", "simple", 300),
    ]
    assert found["rows"][1]["expert_cost_usd"] == "300.00"
    out, _ = report("--day", "2026-01-31", "--by", "tier")
    assert out.splitlines()[0] == "Routed on 2026-01-31 (days in UTC):"
    assert out.count("TIER") == 1


def test_what_the_monitor_has_decided_is_said(report: Run, january: None, tmp_path: Path) -> None:
    with closing(Database(tmp_path / "home" / "state")) as database:
        learning = LearningTable(database)
        change = Change("simple", "maths/story", True, 1_769_817_600.0, "Of 40 answers 20 were good.")
        assert learning.change(change, "small")
        state = Rollout(champion="light-1", challenger="light-2", stage="shadow", since=1_769_817_600.0)
        assert learning.set_rollout(0, state, [])
    out, _ = report("--since", "2026-01-01")
    assert "Since 2026-01-31 the tier simple is skipped for maths/story" in out
    assert "Predictor: light-1; light-2 is on trial (shadow) since 2026-01-31." in out
    assert "Of 40 answers 20 were good." in out
    found = json.loads(report("--since", "2026-01-01", "--json")[0])
    assert found["promoted"] == [
        {"tier": "simple", "region": "maths/story", "tenant": None, "since": 1_769_817_600}
    ]
    assert found["rollout"]["stage"] == "shadow"


def test_this_month_is_meant_unless_said(report: Run, january: None) -> None:
    _, err = report()
    assert err == f"Nothing was routed from {datetime.now(UTC):%Y-%m-01}.\n"


def test_without_any_state_nothing_was_routed(report: Run, tmp_path: Path) -> None:
    assert "Nothing was routed" in report()[1]
    assert json.loads(report("--json")[0])["rows"] == []
    assert not (tmp_path / "home" / "state").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--by", "model"], "--by must be one or several of tenant, day, tier, got 'model'."),
        (["--day", "2026-1-1"], "--day must be a day such as 2026-01-31"),
        (["--day", "2026-01-01", "--since", "2026-01-01"], "--day names one day"),
        (["--since", "2026-02-01", "--until", "2026-01-01"], "swap them"),
    ],
)
def test_what_is_not_meant_is_refused(report: Run, arguments: list[str], said: str) -> None:
    assert said in report(*arguments, code=2)[1]


def test_money_is_rounded_for_people_and_exact_for_programs() -> None:
    assert [dollars(amount) for amount in (0, 499_999, 1_500_000, -2 * DOLLAR, -1)] == [
        "$0.00",
        "$0.00",
        "$0.000002",
        "-$2.00",
        "$0.00",
    ]
    assert (exact(-1), exact(1234 * DOLLAR)) == ("-0.000000000001", "1234.00")
