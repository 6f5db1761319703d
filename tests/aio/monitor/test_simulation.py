"""Tiers of known quality and cost behind the monitor: what breaks is found, and only that.

One seed drives everything. The objects are those that run in the gateway.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.aio.heads import Head
from penstock.aio.judges.verdict import Outcome
from penstock.aio.monitor import Change, QualityBook, RetrainRule, Rollout, RolloutRules, Sampler, Trial
from penstock.aio.retrain import Rows, retrain

DAY = 86_400.0
REGIONS = ("maths", "law", "code", "facts", "prose", "medicine")
HEALTHY = {"small": 0.95, "medium": 0.97}
EXPERT_COST = 10**10  # picodollars: a cent
A_SECOND = 5.0  # requests


@dataclass
class Town:
    """Requests come in evenly; the small tier answers unless it is skipped, then the medium one."""

    seed: int
    quality: dict[tuple[str, str], float] = field(default_factory=dict)
    share: float = 0.05
    book: QualityBook = field(default_factory=QualityBook)
    changes: list[Change] = field(default_factory=list)
    judged: dict[tuple[str, str], int] = field(default_factory=dict)
    delivered: dict[str, list[bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.sampler = Sampler(self.share, 1000 * 10**12, HEALTHY)
        self.now = 0.0

    def answer(self, tier: str, region: str) -> bool:
        return self.rng.random() < self.quality.get((tier, region), HEALTHY[tier])

    def run(self, requests: int) -> None:
        for _ in range(requests):
            self.now += 1 / A_SECOND
            region = self.rng.choice(REGIONS)
            skipped = self.book.is_promoted("small", region)
            tier = "medium" if skipped else "small"
            good = self.answer(tier, region)
            self.delivered.setdefault(region, []).append(good)
            self.check(tier, region, good)
            if skipped:  # in the background: nobody gets what the skipped tier says
                self.check("small", region, self.answer("small", region), probe=True)

    def check(self, tier: str, region: str, good: bool, *, probe: bool = False) -> None:
        sample = self.sampler.take(tier, draw=self.rng.random(), cost=EXPERT_COST, now=self.now, probe=probe)
        if sample is None:
            return
        self.sampler.settle(sample, EXPERT_COST // 2)
        outcome: Outcome = "same" if good else "expert_better"
        self.judged[tier, region] = self.judged.get((tier, region), 0) + 1
        change = self.book.add(tier, region, outcome, self.now)
        if change:
            self.changes.append(change)


@pytest.mark.parametrize("broken", [0.1, 0.4])
def test_a_broken_kind_of_query_is_promoted_and_only_it_within_the_samples_the_bound_needs(
    broken: float,
) -> None:
    needed = QualityBook().samples_needed(broken)
    assert needed is not None
    in_time = 0
    for seed in range(10):
        town = Town(seed)
        town.run(6000)
        assert town.changes == []
        town.quality["small", "maths"] = broken
        before = town.judged["small", "maths"]
        while not town.changes:
            town.run(20)
        in_time += town.judged["small", "maths"] - before <= needed
        assert [(change.tier, change.region, change.promoted) for change in town.changes] == [
            ("small", "maths", True)
        ]
    assert in_time >= 9  # of 10, with a stated power of 95%


def test_users_of_a_promoted_region_get_good_answers_and_the_tier_comes_back_when_mended() -> None:
    town = Town(1, quality={("small", "maths"): 0.2})
    town.run(6000)
    assert [(change.region, change.promoted) for change in town.changes] == [("maths", True)]
    town.delivered.clear()
    town.run(3000)
    assert np.mean(town.delivered["maths"]) > 0.93
    town.quality.clear()
    town.run(12_000)
    assert [(change.region, change.promoted) for change in town.changes] == [
        ("maths", True),
        ("maths", False),
    ]


def test_healthy_regions_are_hardly_ever_promoted() -> None:
    """Quality 0.92, threshold 0.85, 30 regions with 800 verdicts each: looked at after every one of them."""
    book = QualityBook()
    promoted = 0
    for region in range(30):
        rng = random.Random(region)
        for i in range(800):
            good: Outcome = "same" if rng.random() < 0.92 else "expert_better"
            change = book.add("small", f"region {region}", good, float(i))
            promoted += change is not None and change.promoted
    assert promoted <= 1


def test_the_money_of_a_day_bounds_what_is_checked() -> None:
    town = Town(2, share=1.0)
    town.sampler = Sampler(1.0, 40 * EXPERT_COST, HEALTHY)
    town.run(2000)
    assert sum(town.judged.values()) <= 2 * 40 // 2
    assert town.sampler.over_budget > 1500


SIZE = 4
WRONG = Head(np.zeros(SIZE, np.float32), 2.0, (0.2 * np.eye(SIZE + 1)).astype(np.float32))
TRUE = np.array([2.0, -1.5, 0.5, 0.0])


def questions(rng: np.random.Generator, n: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    vectors = rng.normal(size=(n, SIZE)).astype(np.float32)
    chance = 1 / (1 + np.exp(-(vectors @ TRUE + 0.5)))
    return vectors, (rng.random(n) < chance).astype(np.float64)


def says(head: Head, vector: NDArray[np.float32]) -> float:
    return float(1 / (1 + np.exp(-(vector @ head.coefficients + head.intercept))))


@pytest.mark.parametrize(("spoilt", "winner"), [(False, "v2"), (True, "v1")])
def test_a_head_learnt_from_verdicts_gets_through_and_one_learnt_from_spoilt_ones_is_rolled_back(
    spoilt: bool, winner: str
) -> None:
    rng = np.random.default_rng(5)
    vectors, good = questions(rng, 400)
    assert RetrainRule().reason(400, int((good == 0).sum()), 0.0, 2 * DAY)
    learnt = retrain({"small": WRONG}, {"small": Rows(vectors, 1 - good if spoilt else good, np.ones(400))})
    challenger = learnt.heads["small"]
    assert learnt.changed
    rules = RolloutRules()
    state, events = rules.begin(Rollout(champion="v1"), "v2", 0.0)
    trials: list[Trial] = []
    for number, (vector, outcome) in enumerate(zip(*questions(rng, 2000), strict=True)):
        now = number * DAY / 100
        arm = state.decider(str(number), rules.share)
        trials.append(Trial(now, arm, bool(outcome), says(WRONG, vector), says(challenger, vector)))
        state, new = rules.step(state, trials, now)
        events += new
        if state.stage == "steady":
            break
    assert (state.stage, state.champion) == ("steady", winner)
    assert events[-1].what == ("rolled back" if spoilt else "kept")
