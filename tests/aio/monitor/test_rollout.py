"""A new predictor's way: shadow, share, full; back as soon as it is surely worse."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import msgspec
import pytest

from penstock.aio.monitor import Event, Rollout, RolloutRules, Trial, gain

DAY = 86_400.0
RULES = RolloutRules()
Predict = Callable[[float, random.Random], float]


def begun(now: float = 0.0) -> Rollout:
    return RULES.begin(Rollout(champion="v1"), "v2", now)[0]


def right(chance: float, rng: random.Random) -> float:
    return chance


def noisy(chance: float, rng: random.Random) -> float:
    return min(0.98, max(0.02, chance + rng.uniform(-0.35, 0.35)))


def inverted(chance: float, rng: random.Random) -> float:
    return 1 - chance


def run(champion: Predict, challenger: Predict, seed: int, trials: int = 3000) -> tuple[Rollout, list[Event]]:
    """Verdicts come in one by one, 50 a day, until the trial is over."""
    rng = random.Random(seed)
    state, events = RULES.begin(Rollout(champion="v1"), "v2", 0.0)
    seen: list[Trial] = []
    for number in range(trials):
        now = number * DAY / 50
        chance = rng.choice([0.3, 0.6, 0.8, 0.9, 0.95])
        arm = state.decider(f"request {number}", RULES.share)
        seen.append(Trial(now, arm, rng.random() < chance, champion(chance, rng), challenger(chance, rng)))
        state, new = RULES.step(state, seen, now)
        events += new
        if state.stage == "steady":
            break
    return state, events


def test_a_better_model_gets_through_all_stages() -> None:
    for seed in range(6):
        state, events = run(noisy, right, seed)
        assert state == Rollout(champion="v2", since=state.since)
        assert [event.what for event in events] == ["shadow", "share", "full", "kept"]
        assert all(event.subject == "v2" and event.reason.endswith(".") for event in events)


def test_a_worse_model_is_rolled_back_in_shadow_before_it_has_decided_anything() -> None:
    for seed in range(6):
        state, events = run(right, inverted, seed)
        assert state.champion == "v1"
        assert [event.what for event in events] == ["shadow", "rolled back"]
        assert "log loss is higher" in events[-1].reason
        assert events[-1].at < 3 * DAY


def test_a_slightly_worse_model_does_not_get_through() -> None:
    assert [run(right, noisy, seed)[0].champion for seed in range(6)] == ["v1"] * 6


def test_a_model_that_is_worse_only_in_what_it_sends_down_is_rolled_back_on_its_share() -> None:
    state = Rollout(champion="v1", challenger="v2", stage="share", since=0.0)
    trials = [Trial(float(i), "champion", i % 20 != 0, 0.9, 0.9) for i in range(200)]
    trials += [Trial(200.0 + i, "challenger", i % 2 == 0, 0.8, 0.8) for i in range(40)]
    ended, (event,) = RULES.step(state, trials, 300.0)
    assert (ended.champion, ended.stage) == ("v1", "steady")
    assert "20 of 40" in event.reason


def test_a_model_whose_choices_are_worth_less_is_rolled_back() -> None:
    trials = [Trial(float(i), "champion", True, 0.8, 0.8, gain=0.9, challenger_gain=0.5) for i in range(60)]
    ended, (event,) = RULES.step(begun(), trials, 100.0)
    assert ended.champion == "v1"
    assert "choices are worth is less by 0.400" in event.reason


def test_one_that_predicts_better_and_chooses_no_better_does_not_move_on() -> None:
    gains = [(0.5, 0.5), (0.9, 0.1), (0.1, 0.8)] * 30
    trials = [
        Trial(float(i), "champion", True, 0.6, 0.9, gain=gain, challenger_gain=challenger_gain)
        for i, (gain, challenger_gain) in enumerate(gains)
    ]
    assert RULES.step(begun(), trials, 100.0) == (begun(), [])
    assert RULES.step(begun(), [dataclasses.replace(trial, gain=None) for trial in trials], 100.0)[1]


def test_a_share_is_not_over_before_the_challenger_has_decided_often_enough() -> None:
    state = Rollout(champion="v1", challenger="v2", stage="share", since=0.0)
    trials = [Trial(float(i), "champion", True, 0.6, 0.9) for i in range(200)]
    trials += [Trial(200.0 + i, "challenger", True, 0.6, 0.9) for i in range(19)]
    assert RULES.step(state, trials, 300.0) == (state, [])
    after, _ = RULES.step(state, [*trials, Trial(250.0, "challenger", True, 0.6, 0.9)], 300.0)
    assert after.stage == "full"


def test_one_that_turns_bad_after_full_use_is_rolled_back() -> None:
    state = Rollout(champion="v1", challenger="v2", stage="full", since=0.0)
    trials = [Trial(float(i), "challenger", i % 2 == 0, 0.5, 0.95) for i in range(60)]
    ended, (event,) = RULES.step(state, trials, 100.0)
    assert ended.champion == "v1"
    assert event.what == "rolled back"


def test_what_shows_nothing_in_time_ends_and_full_use_without_complaint_is_kept() -> None:
    assert RULES.step(begun(), [], 13.9 * DAY) == (begun(), [])
    ended, (event,) = RULES.step(begun(), [], 14 * DAY)
    assert (ended.champion, event.what) == ("v1", "rolled back")
    full = Rollout(champion="v1", challenger="v2", stage="full", since=0.0)
    ended, (event,) = RULES.step(full, [], 7 * DAY)
    assert (ended.champion, event.what) == ("v2", "kept")


def test_verdicts_from_before_a_stage_do_not_count_in_it() -> None:
    trials = [Trial(float(i), "champion", True, 0.1, 0.9) for i in range(200)]
    assert RULES.step(begun(500.0), trials, 600.0) == (begun(500.0), [])


def test_a_share_is_decided_by_the_challenger_the_same_in_every_process() -> None:
    state = Rollout(champion="v1", challenger="v2", stage="share")
    arms = [state.decider(f"request {i}", 0.1) for i in range(5000)]
    assert 400 < arms.count("challenger") < 600
    assert arms == [state.decider(f"request {i}", 0.1) for i in range(5000)]
    assert {begun().decider(f"request {i}") for i in range(500)} == {"champion"}


@pytest.mark.parametrize(("stage", "champion"), [("shadow", "v1"), ("share", "v1"), ("full", "v2")])
def test_a_newer_model_takes_the_place_of_one_on_trial(stage: str, champion: str) -> None:
    state = Rollout(champion="v1", challenger="v2", stage=stage, since=0.0)  # type: ignore[arg-type]
    after, events = RULES.begin(state, "v3", 10.0)
    assert after == Rollout(champion=champion, challenger="v3", stage="shadow", since=10.0)
    assert [event.subject for event in events] == ["v2", "v3"]


def test_the_state_survives_as_json() -> None:
    state = begun(3.5)
    assert msgspec.json.decode(msgspec.json.encode(state), type=Rollout) == state


def test_what_a_choice_was_worth_is_quality_less_cost() -> None:
    costs = {"small": 0.1, "large": 0.5, "expert": 1.0}
    assert gain("small", "small", True, "expert", costs, 0.3) == pytest.approx(0.97)
    assert gain("small", "small", False, "expert", costs, 0.3) == pytest.approx(-0.03)
    assert gain("expert", "small", False, "expert", costs, 0.3) == pytest.approx(0.7)
    assert gain("large", "small", True, "expert", costs, 0.3) is None


def test_the_few_requests_of_a_challenger_are_checked_about_as_often_as_all() -> None:
    stages = {
        stage: Rollout(champion="v1", challenger="v2", stage=stage) for stage in ("shadow", "share", "full")
    }
    assert RULES.checks(Rollout(champion="v1"), "champion") == 1.0
    assert [RULES.checks(stages[stage], "champion") for stage in stages] == [2.0, 2.0, 2.0]
    assert RULES.checks(stages["share"], "challenger") == 10.0
    assert RULES.checks(stages["full"], "challenger") == 2.0
