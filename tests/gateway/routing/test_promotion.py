"""The monitor over HTTP: a tier that has become bad at one kind of question is no longer asked that kind."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock.aio.monitor import QualityBook
from penstock.gateway.store import Database
from penstock.gateway.store.routes import RouteTable
from tests.gateway.routing.conftest import Ladder
from tests.server import poll
from tests.servers.tiers import fact, story

MONITOR = {"share": 1.0, "daily_budget": 100.0, "tiers": ["low"]}


def verdicts(ladder: Ladder) -> float:
    """Checks that have come to their end."""
    return sum(value for _, value in ladder.door.metrics("penstock_route_verdicts_total"))


def checked_beyond(ladder: Ladder, before: float) -> bool:
    return verdicts(ladder) > before


def report(ladder: Ladder) -> dict[str, Any]:
    return dict(json.loads(ladder.door.command("route", "report", "--json")))


@pytest.fixture(scope="module")
def ladder(climb: Callable[..., Ladder]) -> Ladder:
    return climb(routing={"monitor": MONITOR}, cache="exact")


def test_a_check_is_answered_anew_and_kept_nowhere(ladder: Ladder) -> None:
    for _ in range(2):
        before = verdicts(ladder)
        ladder.tier(fact(1), quality=0.1, temperature=0, max_tokens=50, headers={"cache-control": "no-store"})
        poll(partial(checked_beyond, ladder, before))
    assert ladder.top.counts["fact"] == 2


def test_a_kind_of_question_that_went_bad_is_promoted_and_only_that(ladder: Ladder) -> None:
    needed = QualityBook().samples_needed(0.0)
    assert needed is not None

    def ask(questions: list[str]) -> list[str]:
        """Ask them one by one, and let each be checked: who has answered."""
        tiers = []
        for question in questions:
            before = verdicts(ladder)
            tiers.append(ladder.tier(question, quality=0.1))
            if tiers[-1] == "low":
                poll(partial(checked_beyond, ladder, before))
        return tiers

    both = [question for number in range(2, 12) for question in (story(number), fact(number))]
    assert set(ask(both)) == {"low"}
    ladder.low.wrong = {"story"}
    # As many as the bound needs, beside the ten good ones of before; not one of the good kind goes up.
    tiers = ask([story(number) for number in range(20, 20 + needed + 10)])
    assert tiers.count("low") <= needed + 1
    assert tiers[-1] == "middle"
    assert set(ask([fact(number) for number in range(20, 30)])) == {"low"}
    shown = report(ladder)
    [promoted] = [event for event in shown["events"] if event["what"] == "promoted"]
    assert promoted["subject"].startswith("low ")
    assert float(shown["total"]["monitor_usd"]) > 0
    # Checks are the client's that was checked: the tenant that makes them has no books of its own.
    booked = RouteTable(Database(ladder.door.state)).totals()
    assert {tenant for tenant, _, _ in booked} == {"default"}
    # It is healed: probes in the background find out, and questions come back.
    ladder.low.wrong = set()
    numbers = itertools.count(100)
    poll(lambda: ladder.tier(story(next(numbers)), quality=0.1) == "low")
    # Each request of a client's was checked once at most, and no request of the monitor's.
    assert verdicts(ladder) <= 2 + len(both) + len(tiers) + 10 + next(numbers) - 100
