"""The device is kept one step ahead, and what goes wrong on it harms nobody who is not concerned."""

from __future__ import annotations

from random import Random

import pytest

from penstock.engine.failures import OutOfDeviceMemory
from penstock.engine.schedule import size
from penstock.engine.schedule.plan import StepPlan
from tests.engine.loops import Engine

POINTS = ("at once", "prepared", "computed", "collected")
WORDS = ((3, 4, 5), (3, 4, 6, 7), (3, 9), (8,))


def fill(engine: Engine, rng: Random, count: int) -> None:
    stem = [rng.randint(0, 9) for _ in range(30)]
    for number in range(count):
        prompt = [*stem[: rng.randint(0, 30)], *(rng.randint(0, 9) for _ in range(rng.randint(1, 12)))]
        engine.submit(
            str(number),
            prompt,
            n=rng.choice([1, 1, 1, 3]),
            max_tokens=rng.choice([0, 1, 2, 7, 20]),
            eos=rng.choice([(), (1, 2, 3)]),
            guided=WORDS if rng.random() < 0.15 else (),
            bad_words=((40, 41),) if rng.random() < 0.1 else (),
            prompt_logprobs=rng.choice([None, None, None, 0]),
            priority=rng.choice([0, 0, 0, 1]),
        )


def results(engine: Engine) -> dict[tuple[str, int], tuple[list[int], str]]:
    return {key: (engine.texts[key], reason) for key, reason in engine.ends.items()}


def expected(seed: int) -> dict[tuple[str, int], tuple[list[int], str]]:
    """What comes of the same requests, one step at a time on a device with room for all."""
    engine = Engine(overlaps=False, blocks=2000, max_running=30, max_step_tokens=1000)
    fill(engine, Random(seed), 12)
    engine.run()
    return results(engine)


def crowded(seed: int, **options: object) -> Engine:
    rng = Random(seed)
    engine = Engine(
        blocks=rng.randint(16, 40),
        max_running=rng.randint(1, 6),
        max_step_tokens=rng.randint(6, 24),
        prefix_caching=rng.random() < 0.8,
        **options,
    )
    fill(engine, Random(seed), 12)
    return engine


@pytest.mark.parametrize("seed", range(12))
def test_a_step_in_flight_changes_nothing_that_anybody_gets(seed: int) -> None:
    engine = crowded(seed, overlaps=True)
    engine.run()
    assert results(engine) == expected(seed)
    assert engine.device.most_in_flight == 2


def test_a_device_that_does_not_work_by_itself_is_asked_at_once() -> None:
    engine = crowded(1, overlaps=False)
    engine.run()
    assert engine.device.most_in_flight == 1


def test_the_first_tokens_come_with_the_second_step() -> None:
    engine = Engine(overlaps=True)
    engine.submit("a", [1, 2], max_tokens=2)
    engine.step()
    assert not engine.texts
    engine.step()
    assert len(engine.texts["a", 0]) == 1
    engine.run()
    assert len(engine.device.plans) == 2, "the last token is known to be the last before it is there"


def test_who_is_told_what_may_follow_waits_for_each_token() -> None:
    engine = Engine(overlaps=True)
    engine.submit("guided", [1, 2], guided=WORDS, max_tokens=9)
    engine.run()
    assert tuple(engine.texts["guided", 0]) in WORDS
    assert engine.device.most_in_flight == 1


def test_everything_cancelled_in_flight_leaves_a_step_to_collect() -> None:
    engine = Engine(overlaps=True)
    engine.submit("a", [1, 2], max_tokens=9)
    engine.step()
    engine.cancel("a")
    assert engine.loop.has_work
    engine.run()
    assert engine.texts["a", 0] == []
    assert engine.loop.stats().generated_tokens == 0


def test_what_was_in_flight_for_a_cancelled_one_is_not_given_to_its_namesake() -> None:
    engine, alone = Engine(overlaps=True, max_running=1), Engine(overlaps=False)
    engine.submit("a", [1, 2], max_tokens=9)
    engine.step()
    engine.cancel("a")
    del engine.ends["a", 0]
    for each in (engine, alone):
        each.submit("a", [7, 8, 9], max_tokens=5)
        each.run()
    assert engine.texts == alone.texts


def test_a_stop_token_ends_it_though_a_step_behind_has_computed_more() -> None:
    alone = Engine(overlaps=False)
    alone.submit("a", [5], max_tokens=30)
    alone.run()
    text = alone.texts["a", 0]
    stop = text[6]
    engine = Engine(overlaps=True)
    engine.submit("a", [5], max_tokens=30, eos=(stop,))
    engine.run()
    assert engine.texts["a", 0] == text[: text.index(stop) + 1]
    assert engine.ends["a", 0] == "stop"
    assert engine.loop.stats().generated_tokens == text.index(stop) + 1


# ---------------------------------------------------------------- steps that fail


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("when", POINTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_failed_step_ends_those_in_it_and_no_other(seed: int, when: str, overlaps: bool) -> None:
    rng = Random(seed)
    concerned: set[tuple[str, int]] = set()
    steps = 0

    def fault(plan: StepPlan) -> tuple[str, Exception] | None:
        nonlocal steps
        steps += 1
        if steps % 9 or rng.random() < 0.3:
            return None
        concerned.update((g.sequence.request.id, g.sequence.index) for g in plan.grants)
        return when, RuntimeError("the device is gone")

    engine = crowded(seed, overlaps=overlaps, fault=fault)
    engine.run()
    without = expected(seed)
    failed = {key for key, reason in engine.ends.items() if reason == "error"}
    assert failed
    assert failed <= concerned
    for key, (text, reason) in results(engine).items():
        if key in failed:
            assert text == without[key][0][: len(text)]
        else:
            assert (text, reason) == without[key]


# ---------------------------------------------------------------- out of memory


class SmallDevice:
    """Has memory for steps of some size; says so at any of the given points of a step."""

    def __init__(self, rng: Random, tokens: int, sequences: int, points: tuple[str, ...] = POINTS) -> None:
        self.rng, self.tokens, self.sequences, self.points = rng, tokens, sequences, points
        self.refused = 0

    def __call__(self, plan: StepPlan) -> tuple[str, Exception] | None:
        if plan.num_tokens <= self.tokens and len(plan.grants) <= self.sequences:
            return None
        self.refused += 1
        return self.rng.choice(self.points), OutOfDeviceMemory("no memory")


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_want_of_memory_changes_nothing_that_anybody_gets(
    seed: int, overlaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size, "LEAST_TOKENS", 4)
    monkeypatch.setattr(size, "GOOD_STEPS", 10)  # so that it grows back and fails again
    rng = Random(seed)
    small = SmallDevice(rng, rng.randint(6, 10), rng.randint(1, 3))
    engine = crowded(seed, overlaps=overlaps, fault=small)
    engine.run()
    assert results(engine) == expected(seed)
    assert engine.loop.stats().oom_steps > 0
    assert engine.loop.stats().failed_steps == 0


@pytest.mark.parametrize("overlaps", [False, True])
def test_the_steps_shrink_and_later_grow_back(overlaps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "GOOD_STEPS", 10)
    small = SmallDevice(Random(0), 300, 4, ("prepared",))
    engine = Engine(overlaps=overlaps, fault=small, max_step_tokens=1024, blocks=600)
    engine.submit("a", [at % 10 for at in range(800)], max_tokens=1)
    while engine.loop.stats().steps < 1:
        engine.step()
    assert [plan.num_tokens for plan in engine.device.plans[:3]] == [800, 400, 256]
    small.tokens = 1024
    engine.submit("b", [1], max_tokens=40)
    engine.run()
    assert engine.scheduler.size.tokens == 1024
    assert engine.ends == {("a", 0): "length", ("b", 0): "length"}


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_request_too_large_by_itself_ends_alone_with_what_to_do(overlaps: bool) -> None:
    def fault(plan: StepPlan) -> tuple[str, Exception] | None:
        concerned = any(grant.sequence.request.id == "large" for grant in plan.grants)
        return ("prepared", OutOfDeviceMemory("no memory")) if concerned else None

    engine = Engine(overlaps=overlaps, fault=fault)
    for name in ("a", "large", "b"):
        engine.submit(name, [ord(name[0]) % 10, 2, 3], max_tokens=6)
    engine.run()
    assert engine.ends == {("a", 0): "length", ("large", 0): "error", ("b", 0): "length"}
    assert "memory_fraction" in (engine.errors["large"] or "")


def serve_urgent_beside_others(engine: Engine) -> None:
    for name in "abc":
        engine.submit(name, [ord(name), 2, 3], max_tokens=30, priority=5)
    engine.step()
    engine.submit("urgent", [7, 8, 9], max_tokens=5)
    engine.run()


@pytest.mark.parametrize("point", POINTS)
def test_who_shares_the_device_with_a_step_in_flight_is_not_by_itself(point: str) -> None:
    """The device has memory for three sequences, of the step in flight and the next one together."""

    def fault(plan: StepPlan) -> tuple[str, Exception] | None:
        before = engine.device.plans[-2] if engine.device.in_flight else StepPlan()
        crowded = len(plan.grants) + len(before.grants) > 3
        return (point, OutOfDeviceMemory("no memory")) if crowded else None

    engine = Engine(overlaps=True, fault=fault)
    serve_urgent_beside_others(engine)
    assert engine.loop.stats().oom_steps > 0
    assert set(engine.ends.values()) == {"length"}


def test_who_lacks_what_others_hold_is_not_by_itself() -> None:
    """A step of one has memory only where nobody else is running."""

    def fault(plan: StepPlan) -> tuple[str, Exception] | None:
        short = len(plan.grants) == 1 and len(engine.scheduler.running) > 1
        return ("at once", OutOfDeviceMemory("no memory")) if short else None

    engine = Engine(overlaps=False, fault=fault)
    serve_urgent_beside_others(engine)
    assert engine.loop.stats().oom_steps > 0
    assert set(engine.ends.values()) == {"length"}


def test_two_steps_are_too_much_where_one_is_not() -> None:
    def fault(plan: StepPlan) -> tuple[str, Exception] | None:
        return ("at once", OutOfDeviceMemory("no memory")) if engine.device.in_flight else None

    engine = Engine(overlaps=True, fault=fault)
    engine.submit("a", [1, 2, 3], max_tokens=30)
    engine.run()
    assert engine.ends == {("a", 0): "length"}
    assert engine.loop.stats().oom_steps == 1, "from there on one at a time"


@pytest.mark.parametrize("seed", range(12))
def test_one_shortage_ends_nobody_who_is_not_alone(seed: int) -> None:
    rng = Random(seed)
    refused = False

    def fault(plan: StepPlan) -> tuple[str, Exception] | None:
        nonlocal refused
        others = engine.device.in_flight or len(engine.scheduler.running) > 1
        if refused or len(plan.grants) > 1 or not others:
            return None
        refused = True
        return rng.choice(POINTS), OutOfDeviceMemory("no memory")

    engine = Engine(overlaps=True, fault=fault)
    fill(engine, rng, 12)
    engine.submit("last", [1], max_tokens=100)
    engine.run()
    assert refused
    assert "error" not in engine.ends.values()


def test_the_lowest_in_rank_make_room_and_come_back() -> None:
    small = SmallDevice(Random(0), 100, 2, ("prepared",))
    engine = Engine(overlaps=True, fault=small, max_running=8, max_step_tokens=64)
    for number in range(8):
        engine.submit(str(number), [number, 1], max_tokens=5)
    engine.run()
    assert small.refused == 2, "eight, then four, then two"
    assert list(engine.ends) == [(str(number), 0) for number in range(8)]


@pytest.mark.parametrize("overlaps", [False, True])
def test_every_event_says_when_its_request_was_first_computed(overlaps: bool) -> None:
    engine = Engine(overlaps=overlaps, max_running=1, max_step_tokens=4)
    engine.now = 10.0
    engine.submit("long", range(9), max_tokens=2)
    engine.submit("next", [1], max_tokens=1)
    scheduled: dict[str, set[float]] = {}
    while engine.loop.has_work:
        for event in engine.loop.step():
            scheduled.setdefault(event.request_id, set()).add(event.scheduled)
        engine.now += 1.0
    assert scheduled["long"] == {10.0}
    [began] = scheduled["next"]
    assert began > 13.0, "three steps of the prompt came before it"
