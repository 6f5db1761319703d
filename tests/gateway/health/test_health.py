"""When a replica gets requests and when not, told by events and a clock in the test's hand."""

from __future__ import annotations

import pytest

from penstock.config.sections import HealthConfig
from penstock.gateway.health import Health, HealthLimits, engine_limits, server_limits, unwatched_limits

ENGINE = HealthLimits()
SERVER = server_limits(HealthConfig())
HOSTED = unwatched_limits(HealthConfig())


def running(limits: HealthLimits, now: float = 0.0) -> Health:
    """A replica that has just answered its first probe."""
    health = Health(limits, now)
    health.probing(now)
    health.probed(True, now)
    return health


# ---------------------------------------------------------------- alive, ready, healthy


def test_a_replica_is_alive_before_it_is_ready_and_ready_before_it_is_healthy() -> None:
    health = Health(ENGINE, 0.0)
    assert (health.alive, health.ready, health.state(0.0)) == (True, False, "starting")
    assert health.reason(0.0) == "it has not answered yet"
    health.token(1.0)
    assert (health.alive, health.ready, health.state(1.0)) == (True, True, "healthy")
    assert health.reason(1.0) is None
    health.fault("the device reported an error", 2.0)
    assert (health.alive, health.ready, health.state(2.0)) == (True, True, "unhealthy")
    health.died("its process ended (signal 9)", 3.0)
    assert (health.alive, health.ready, health.state(3.0)) == (False, False, "dead")
    assert health.reason(3.0) == "its process ended (signal 9)"


def test_loading_for_long_is_no_silence() -> None:
    health = Health(ENGINE, 0.0)
    assert health.state(600.0) == "starting"


def test_a_new_process_is_ready_only_after_a_real_token() -> None:
    health = running(ENGINE)
    health.died("its process ended", 5.0)
    health.revived(7.0)
    assert health.state(7.0) == "starting"
    health.beat(8.0)
    assert health.state(8.0) == "starting"
    health.token(8.5)
    assert health.state(8.5) == "healthy"


def test_tokens_of_a_process_that_is_gone_do_not_raise_it_from_the_dead() -> None:
    health = running(SERVER)
    health.died("it refuses connections", 5.0)
    health.token(5.1)
    assert health.state(5.1) == "dead"
    assert not health.ready


# ---------------------------------------------------------------- heartbeat


def test_a_loop_that_stands_still_is_out_and_back_with_its_next_token() -> None:
    health = running(ENGINE)
    health.beat(4.0)
    assert health.state(12.0) == "healthy"
    assert health.state(12.1) == "unhealthy"
    assert "no progress for 8.1 s" in str(health.reason(12.1))
    health.beat(30.0)
    assert health.state(30.0) == "unhealthy", "a beat alone computes nothing"
    health.token(30.2)
    assert health.state(30.2) == "healthy"


def test_a_loop_that_stands_still_is_not_probed_until_it_beats_again() -> None:
    health = running(ENGINE)
    assert health.state(9.0) == "unhealthy"
    assert not health.wants_probe(11.0)
    health.beat(20.0)
    assert health.wants_probe(20.1)
    health.probing(20.1)
    health.probed(True, 20.2)
    assert health.state(20.2) == "healthy"


def test_the_watchers_own_standstill_is_not_the_replicas() -> None:
    health = running(ENGINE)
    health.beat(1.0)
    health.probing(1.0)
    health.excuse(30.0)
    assert health.state(31.5) == "healthy"
    assert health.state(40.0) == "unhealthy"


# ---------------------------------------------------------------- probes


def test_an_idle_replica_is_probed_now_and_then() -> None:
    health = running(ENGINE)
    asked = []
    for tick in range(1, 121):
        now = tick / 2
        health.beat(now)
        if health.wants_probe(now):
            asked.append(now)
            health.probing(now)
            assert not health.wants_probe(now), "one at a time"
            health.probed(True, now)
    assert asked == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]


def test_a_replica_whose_work_comes_through_is_never_probed() -> None:
    health = running(ENGINE)
    for tick in range(1, 1000):
        health.beat(tick)
        health.token(tick)
        assert not health.wants_probe(tick + 0.5)


def test_a_loop_that_goes_round_and_computes_nothing_is_found_out_by_a_probe() -> None:
    health = running(ENGINE)
    health.beat(10.0)
    assert health.wants_probe(10.0)
    health.probing(10.0)
    health.beat(15.5)
    assert health.state(15.5) == "unhealthy"
    assert health.reason(15.5) == "it has not answered a probe for 5.5 s"


def test_a_probe_that_waited_behind_work_is_no_fault_of_a_replica_that_works() -> None:
    health = running(SERVER)
    health.probing(3.0)
    health.token(7.9)
    assert health.state(8.1) == "healthy"
    health.probed(False, 8.1)
    assert health.state(8.1) == "healthy"
    assert health.wants_probe(8.2), "but it is asked again soon"
    assert health.state(12.8) == "healthy"
    assert health.state(13.0) == "unhealthy", "nothing came through any more, and the probe is still missed"


def test_a_replica_that_itself_says_no_is_out_however_busy() -> None:
    health = running(SERVER)
    health.probing(3.0)
    health.token(3.1)
    health.probed(False, 3.1, "its health check says 503")
    health.token(3.2)
    assert health.state(3.2) == "unhealthy"
    assert health.reason(3.2) == "its health check says 503"


def test_a_server_that_hangs_is_out_within_ten_seconds_and_back_when_it_answers() -> None:
    health = running(SERVER)
    now = 0.0
    while health.state(now) == "healthy":
        if health.wants_probe(now):
            health.probing(now)
        now += 0.5
    assert now <= 10.0
    health.probed(False, now)
    now += SERVER.doubt_every
    assert health.wants_probe(now)
    health.probing(now)
    health.probed(True, now + 0.1)
    assert health.state(now + 0.1) == "healthy"


def test_a_server_that_refuses_connections_is_out_at_once_and_back_after_a_probe() -> None:
    health = running(SERVER)
    health.died("it refuses connections", 1.0)
    assert health.state(1.0) == "dead"
    assert health.wants_probe(2.0)
    health.probing(2.0)
    health.died("it refuses connections", 2.0)
    assert not health.wants_probe(2.5)
    assert health.wants_probe(3.0)
    health.probing(3.0)
    health.probed(True, 3.1)
    assert health.state(3.1) == "healthy"


def test_an_answer_to_a_probe_of_the_process_before_says_nothing_of_the_new_one() -> None:
    health = running(ENGINE)
    health.probing(1.0)
    health.died("its process ended", 1.5)
    health.revived(2.0)
    health.probed(True, 2.1)
    assert health.state(2.1) == "starting"
    health.token(3.0)
    health.probed(False, 3.1)
    assert health.state(3.1) == "healthy"


def test_a_fault_outlasts_tokens_and_a_probe_under_way_but_not_a_new_probe() -> None:
    health = running(ENGINE)
    health.probing(1.0)
    health.fault("a step failed", 1.1)
    health.token(1.2)
    health.probed(True, 1.3)
    assert health.state(1.3) == "unhealthy"
    assert health.wants_probe(2.0)
    health.probing(2.0)
    health.probed(True, 2.1)
    assert health.state(2.1) == "healthy"


# ---------------------------------------------------------------- errors


def answers(health: Health, now: float, good: int, bad: int) -> None:
    for ok in [True] * good + [False] * bad:
        health.answered(ok, now)


def test_a_replica_most_of_whose_answers_fail_is_out() -> None:
    health = running(ENGINE)
    answers(health, 1.0, good=5, bad=5)
    assert health.state(1.0) == "healthy", "half is not more than half"
    answers(health, 2.0, good=0, bad=1)
    assert health.state(2.0) == "unhealthy"
    assert health.reason(2.0) == "6 of its last 11 answers failed"


def test_few_answers_are_no_judgement() -> None:
    health = running(ENGINE)
    answers(health, 1.0, good=0, bad=9)
    assert health.state(1.0) == "healthy"


def test_old_failures_are_forgotten() -> None:
    health = running(SERVER)
    answers(health, 1.0, good=0, bad=9)
    answers(health, 40.0, good=0, bad=9)
    assert health.state(40.0) == "healthy"


def test_a_failed_answer_raises_doubt_which_a_probe_or_a_token_settles() -> None:
    health = running(ENGINE, 0.0)
    answers(health, 2.0, good=0, bad=1)
    assert health.wants_probe(2.0)
    health.probing(2.0)
    health.probed(True, 2.1)
    assert not health.wants_probe(4.0)
    answers(health, 5.0, good=0, bad=1)
    health.token(5.1)
    assert not health.wants_probe(6.5)


def test_a_replica_that_failed_its_requests_must_wait_before_it_is_tried_again() -> None:
    health = running(SERVER)
    answers(health, 1.0, good=0, bad=10)
    for now in (2.0, 4.0, 5.5):
        health.token(now)
        health.probing(now)
        health.probed(True, now)
        assert health.state(now) == "unhealthy", "its health endpoint says well of it all the time"
    health.probing(6.0)
    health.probed(True, 6.1)
    assert health.state(6.1) == "healthy"
    answers(health, 7.0, good=0, bad=9)
    assert health.state(7.0) == "healthy", "what it did before is paid for"


def test_what_cannot_be_probed_is_believed_and_comes_back_by_time() -> None:
    health = Health(HOSTED, 0.0)
    assert health.state(0.0) == "healthy"
    assert not health.wants_probe(1000.0)
    health.died("it refuses connections", 1000.0)
    assert health.state(1001.0) == "dead"
    assert health.state(1005.0) == "healthy"
    answers(health, 1006.0, good=0, bad=10)
    assert health.state(1010.0) == "unhealthy"
    assert health.state(1016.0) == "healthy", "the second time it took twice as long"


# ---------------------------------------------------------------- coming and going


def test_a_replica_that_comes_and_goes_stays_out_longer_each_time_up_to_a_limit() -> None:
    health, now, pauses = running(ENGINE), 0.0, []
    for _ in range(8):
        now += 1.0
        health.fault("a step failed", now)
        out = now
        while health.state(now) != "healthy":
            now += 0.5
            health.beat(now)
            if health.wants_probe(now):
                health.probing(now)
                health.probed(True, now)
        pauses.append(now - out)
    assert pauses[0] <= 1.0
    assert pauses == sorted(pauses)
    assert pauses[2] >= 10.0
    assert 60.0 <= pauses[-1] <= 61.0


def test_after_a_calm_while_earlier_troubles_are_forgotten() -> None:
    health, now = running(ENGINE), 0.0
    for _ in range(3):
        now += 200.0
        health.beat(now)
        health.token(now)
        health.fault("a step failed", now)
        now += 1.0
        health.probing(now)
        health.probed(True, now)
        assert health.state(now) == "healthy"


@pytest.mark.parametrize("limits", [ENGINE, SERVER])
def test_a_replica_that_is_not_there_yet_earns_no_punishment_for_it(limits: HealthLimits) -> None:
    health = Health(limits, 0.0)
    for now in (1.0, 2.0, 3.0):
        health.probing(now)
        health.died("it refuses connections", now)
    health.revived(4.0)
    health.token(4.5)
    health.died("it refuses connections", 5.0)
    health.revived(6.0)
    health.token(6.0)
    assert health.state(6.0) == "healthy"


def test_answers_that_fail_because_it_dies_count_with_its_death() -> None:
    health = running(ENGINE)
    answers(health, 1.0, good=0, bad=20)
    health.died("its process ended", 1.0)
    answers(health, 1.1, good=0, bad=20)
    health.revived(2.0)
    health.token(2.0)
    assert health.state(2.0) == "healthy"
    health.fault("a step failed", 3.0)
    back = 3.0 + ENGINE.hold
    health.beat(back)
    health.probing(back)
    health.probed(True, back)
    assert health.state(back) == "healthy", "it was out for the second time, not for the third"


def test_limits_come_from_the_configuration() -> None:
    config = HealthConfig(silence=3.0, probe_every=2.0, probe_timeout=1.0, error_rate=0.1, error_requests=3)
    assert engine_limits(config).silence == 3.0
    assert server_limits(config).silence is None
    assert server_limits(config).probe_every == 2.0
    assert server_limits(HealthConfig()).probe_every == 3.0, "asked often enough to be out within ten seconds"
    assert unwatched_limits(config).probe_every is None
    for limits in (engine_limits(config), server_limits(config), unwatched_limits(config)):
        assert (limits.error_rate, limits.error_requests) == (0.1, 3)
