"""A ladder that is changed while it is served, and tiers that are full, dear or broken at the same time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.routing.conftest import Ladder
from tests.server import poll
from tests.servers.tiers import fact


def changed(ladder: Ladder) -> dict[str, Any]:
    """The configuration as it was written last, to be changed."""
    return dict(yaml.safe_load(ladder.door.config.read_text()))


def log(ladder: Ladder) -> str:
    return Path(ladder.door._log.name).read_text()


def reload(ladder: Ladder, config: dict[str, Any], says: str) -> None:
    """Have it read, until its log says so once more."""
    before = log(ladder).count(says)
    ladder.door.reload(config)
    poll(lambda: log(ladder).count(says) > before)


@pytest.fixture(scope="module")
def ladder(climb: Callable[..., Ladder]) -> Ladder:
    """Its lowest tier answers one request at a time, and shortly."""
    made = climb(
        routing={"monitor": {"enabled": False}},
        tenants={"default": {}, "poor": {"monthly_budget": 0.01}},
    )
    made.lock("default", "poor")
    config = changed(made)
    config["models"]["small"]["backends"][0]["max_concurrent"] = 1
    config["tiers"]["low"]["max_tokens"] = 16
    config["routing"]["log"] = str(made.door.config.parent / "decisions.jsonl")
    reload(made, config, "Read the configuration again")
    return made


def models(ladder: Ladder) -> list[str]:
    return [each["id"] for each in ladder.door.get("/v1/models", **ladder.keys["default"]).json()["data"]]


def test_a_ladder_that_cannot_be_weighed_leaves_everything_as_it_was(ladder: Ladder) -> None:
    config = changed(ladder)
    before = models(ladder)
    wrong = json.loads(json.dumps(config))
    wrong["tiers"]["low"]["like"] = "nonsense"
    wrong["models"]["extra"] = wrong["models"]["small"]
    reload(ladder, wrong, "The configuration was not changed")
    assert "nonsense" in log(ladder)
    assert models(ladder) == before
    assert ladder.tier(fact(1), quality=0.1) == "low"
    ladder.door.write(config)


@contextmanager
def asked(ladder: Ladder, count: int) -> Iterator[None]:
    """So many requests are at the lowest tier, or wait for it."""
    came = sum(ladder.low.counts.values())
    ladder.low.held = True
    asking = [
        threading.Thread(target=ladder.ask, args=(fact(n),), kwargs={"quality": 0.1}) for n in range(count)
    ]
    try:
        for thread in asking:
            thread.start()
        poll(lambda: sum(ladder.low.counts.values()) > came)
        poll(lambda: waiting(ladder) == count - 1)
        yield
    finally:
        ladder.low.held = False
        for thread in asking:
            thread.join()


def waiting(ladder: Ladder) -> float:
    return sum(
        value for labels, value in ladder.door.metrics("penstock_queue_requests") if "small" in str(labels)
    )


@pytest.mark.parametrize("count", [1, 2])
def test_a_tier_that_is_full_beyond_the_deadline_is_passed_over(ladder: Ladder, count: int) -> None:
    """With others in its queue, and where the request would be the first there."""
    with asked(ladder, count):
        headers = {"x-penstock-deadline-ms": "5000"}
        assert ladder.tier(fact(50), quality=0.1, headers=headers) == "middle"


def test_a_budget_that_the_expert_would_exceed_is_not_spent_by_passing_over(ladder: Ladder) -> None:
    pinned = {"x-penstock-tier": "top"}
    assert ladder.ask(fact(1), tenant="poor", headers=pinned, max_tokens=4000).status == 429
    ladder.low.silent = ladder.middle.silent = True
    asked_before = sum(ladder.top.counts.values())
    try:
        reply = ladder.ask(fact(1), tenant="poor", quality=0.1, max_tokens=4000)
    finally:
        ladder.low.silent = ladder.middle.silent = False
    assert reply.status == 502
    assert sum(ladder.top.counts.values()) == asked_before


def test_a_decision_says_how_long_the_answers_might_have_been(ladder: Ladder) -> None:
    ladder.tier(fact(7), quality=0.1, max_tokens=11, n=2)
    path = Path(changed(ladder)["routing"]["log"])

    def allowed() -> list[int]:
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line).get("most_output_tokens", 0) for line in lines]

    poll(lambda: 22 in allowed())
