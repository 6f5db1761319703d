"""Replicas whose every step, freeze and probe is simulated: busy ones stay in, frozen ones go out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.config.sections import HealthConfig
from penstock.gateway.health import Health, HealthLimits, server_limits

TICK = 0.5  # seconds between two looks of the watcher
ENGINE = HealthLimits()
SERVER = server_limits(HealthConfig())


@dataclass
class Engine:
    """Steps of random length while there is work, a beat each second while there is none.

    A probe is computed in the step after the one it arrives in. Frozen, it does nothing at all.
    """

    draw: random.Random
    longest_step: float
    frozen_at: float = float("inf")
    thawed_at: float = float("inf")
    busy: bool = True
    step_ends: float = 0.0
    probe_arrived: float | None = None
    probe_due: float | None = None
    asked_at: float | None = None  # by the watcher, which still waits for the answer
    events: list[tuple[float, bool]] = field(default_factory=list)  # (time, whether tokens came)

    def run_until(self, now: float) -> None:
        while self.step_ends <= now:
            if self.frozen_at <= self.step_ends < self.thawed_at:
                if self.thawed_at > now:
                    return
                self.step_ends = self.thawed_at
            computing = self.busy or self.probe_arrived is not None
            self.events.append((self.step_ends, computing))
            if self.probe_arrived is not None and self.probe_arrived < self.step_ends:
                self.probe_due, self.probe_arrived = self.step_ends, None
            if computing:
                self.step_ends += self.draw.uniform(0.005, self.longest_step)
            else:
                self.step_ends += 1.0


def watch(health: Health, engine: Engine, seconds: float, phase: float) -> list[tuple[float, str]]:
    """What the watcher of an engine does, tick by tick; the changes of state it saw."""
    states: list[tuple[float, str]] = []
    now = phase
    while now < seconds:
        engine.run_until(now)
        for at, tokens in engine.events:
            health.beat(at)
            if tokens:
                health.token(at)
        engine.events.clear()
        if engine.asked_at is not None:
            if engine.probe_due is not None:
                health.probed(True, now)
                engine.asked_at = None
            elif now - engine.asked_at > ENGINE.probe_timeout:
                health.probed(False, now)
                engine.asked_at = engine.probe_arrived = None
        state = health.state(now)
        if not states or states[-1][1] != state:
            states.append((now, state))
        if health.wants_probe(now):
            health.probing(now)
            engine.asked_at = engine.probe_arrived = now
            engine.probe_due = None
        now += TICK
    return states


@given(seed=st.integers(0, 2**32), longest=st.floats(0.01, 4.0), phase=st.floats(0.0, TICK))
@example(seed=1, longest=4.0, phase=0.0)
@example(seed=2, longest=4.0, phase=0.3)
@settings(max_examples=20)
def test_an_hour_at_saturation_costs_no_replica_its_place(seed: int, longest: float, phase: float) -> None:
    engine = Engine(random.Random(seed), longest_step=longest)
    # Steps of 5 ms would be 720,000 of them: an hour of the long ones, minutes of the short.
    seconds = min(3600.0, 2000 * longest)
    health = Health(ENGINE, 0.0)
    health.token(0.0)
    assert [state for _, state in watch(health, engine, seconds, phase)] == ["healthy"]


@given(seed=st.integers(0, 2**32), longest=st.floats(0.1, 4.0), phase=st.floats(0.0, TICK))
@settings(max_examples=20)
def test_work_that_comes_and_goes_costs_no_replica_its_place(seed: int, longest: float, phase: float) -> None:
    draw = random.Random(seed)
    engine = Engine(draw, longest_step=longest)
    health = Health(ENGINE, 0.0)
    health.token(0.0)
    now = 0.0
    while now < 600.0:
        engine.busy = not engine.busy
        until = now + draw.uniform(0.1, 40.0)
        states = [state for _, state in watch(health, engine, until, now + phase)]
        assert set(states) <= {"healthy"}
        now = until


@given(
    seed=st.integers(0, 2**32),
    frozen_at=st.floats(20.0, 60.0),
    frozen_for=st.floats(15.0, 100.0),
    busy=st.booleans(),
    phase=st.floats(0.0, TICK),
)
@settings(max_examples=60)
def test_a_frozen_engine_is_out_within_ten_seconds_and_back_when_it_wakes(
    seed: int, frozen_at: float, frozen_for: float, busy: bool, phase: float
) -> None:
    thawed_at = frozen_at + frozen_for
    engine = Engine(random.Random(seed), 4.0, frozen_at=frozen_at, thawed_at=thawed_at, busy=busy)
    health = Health(ENGINE, 0.0)
    health.token(0.0)
    states = watch(health, engine, thawed_at + 20.0, phase)
    assert [state for _, state in states] == ["healthy", "unhealthy", "healthy"]
    assert states[1][0] <= frozen_at + 10.0
    assert states[2][0] >= thawed_at


@given(
    hung_at=st.floats(5.0, 60.0),
    health_takes=st.floats(0.001, 3.0),
    gap=st.floats(0.1, 30.0),
    phase=st.floats(0.0, TICK),
)
@example(hung_at=30.0, health_takes=3.0, gap=0.1, phase=0.3)  # asked before it hung, as streams still flowed
@settings(max_examples=200)
def test_a_hung_server_is_out_within_ten_seconds_and_a_busy_one_stays(
    hung_at: float, health_takes: float, gap: float, phase: float
) -> None:
    """`gap`: seconds between two chunks of its streams. Its health endpoint is slow, but it answers."""
    health = Health(SERVER, 0.0)
    answer_at: float | None = None
    asked_at = 0.0
    chunk_at, now, out_at = gap, phase, None
    while now < hung_at + 15.0 and out_at is None:
        while chunk_at <= min(now, hung_at):
            health.token(chunk_at)
            chunk_at += gap
        if answer_at is not None and answer_at <= min(now, hung_at):
            health.probed(True, now)
            answer_at = None
        if answer_at is not None and now - asked_at > SERVER.probe_timeout:
            health.probed(False, now)
            answer_at = None
        if health.wants_probe(now):
            health.probing(now)
            asked_at, answer_at = now, now + health_takes
        if health.state(now) == "unhealthy":
            out_at = now
        now += TICK
    assert out_at is not None
    assert hung_at < out_at <= hung_at + 10.0


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20)
def test_a_replica_that_flaps_is_mostly_out(seed: int) -> None:
    """Its health endpoint always answers, half a minute of requests fails whenever it is let in."""
    draw, health = random.Random(seed), Health(SERVER, 0.0)
    now, inside, changes, before = 0.0, 0.0, 0, "starting"
    while now < 3600.0:
        if health.wants_probe(now):
            health.probing(now)
            health.probed(True, now)
        state = health.state(now)
        changes += state != before
        before = state
        if state == "healthy":
            inside += TICK
            for _ in range(5):
                health.answered(draw.random() < 0.1, now)
        now += TICK
    assert inside < 0.05 * 3600.0
    assert changes < 150, "a time out of up to a minute each: not much over an hour's sixty"
