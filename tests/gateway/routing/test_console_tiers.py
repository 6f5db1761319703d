"""What the console shows of `model: auto`: mix, cost and savings since the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.gateway.routing.conftest import Ladder
from tests.server import poll
from tests.servers.tiers import fact


def test_tiers_are_shown_with_what_they_answered_and_saved(climb: Callable[..., Ladder]) -> None:
    ladder = climb(routing={"monitor": {"enabled": False}})
    assert ladder.tier(fact(1), quality=0.1) == "low"
    assert ladder.tier(fact(1), headers={"x-penstock-tier": "top"}) == "top"
    assert ladder.tier(fact(1), quality=1.0) != "low"
    seen: dict[str, Any] = {}

    def answered() -> bool:
        seen.update(ladder.door.get("/console/state").json()["routing"])
        return bool(seen["answers"] == 2)

    poll(answered)
    tiers = {tier["name"]: tier for tier in seen["tiers"]}
    assert list(tiers) == ["low", "middle", "top"]
    assert tiers["low"]["model"] == "small"
    assert tiers["low"]["answers"] == 1, "what was pinned is nobody's choice"
    assert tiers["low"]["share"] == 0.5
    assert sum(tier["dollars"] for tier in tiers.values()) == pytest.approx(seen["spent"])
    assert seen["always_expert"] > seen["spent"] > 0
    net = (seen["always_expert"] - seen["spent"] - seen["overhead"]) / seen["always_expert"]
    assert seen["savings"] == pytest.approx(net)
