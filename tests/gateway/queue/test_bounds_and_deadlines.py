"""Who is refused, who is pushed out, and who has waited too long."""

from __future__ import annotations

from itertools import count

import pytest

from penstock.gateway.queue import FairQueue, QueueLimits, QueueRefusal, ServiceClass, Ticket

IDS = count()


def ticket(
    tenant: str = "a",
    service_class: ServiceClass = "standard",
    *,
    at: float = 0.0,
    tokens: int = 100,
    weight: float = 1.0,
    deadline: float | None = None,
) -> Ticket:
    return Ticket(next(IDS), tenant, service_class, weight, tokens, at, deadline)


def full(*tickets: Ticket, max_tokens: int = 1_000_000) -> FairQueue:
    """A queue in which exactly these have room."""
    queue = FairQueue(QueueLimits(max_requests=len(tickets), max_tokens=max_tokens))
    for each in tickets:
        queue.offer(each, each.arrived)
    return queue


def saturate(queue: FairQueue, *, tokens: int, seconds: float, start: float = 0.0) -> float:
    """Let the queue see requests go out one by one, each `tokens` in `seconds`; returns the time after it."""
    requests = [ticket("measured", tokens=tokens, at=start) for _ in range(6)]
    for each in requests:
        queue.offer(each, start)
    for i in range(5):
        assert queue.take(start + i * seconds, lambda *_: False) is None
        assert queue.take(start + (i + 1) * seconds, lambda *_: True) is not None
    queue.take(start + 5 * seconds, lambda *_: False)
    return start + 5 * seconds


def test_a_full_queue_refuses_with_429_and_a_time_to_come_back() -> None:
    queue = full(ticket(), ticket())
    with pytest.raises(QueueRefusal, match="full: 2 requests with 200 tokens") as refused:
        queue.offer(ticket(), 0.0)
    assert refused.value.status == 429
    assert refused.value.reason == "full"
    assert refused.value.retry_after >= 1


def test_a_queue_full_of_tokens_is_full() -> None:
    queue = FairQueue(QueueLimits(max_requests=100, max_tokens=1000))
    queue.offer(ticket(tokens=600), 0.0)
    with pytest.raises(QueueRefusal):
        queue.offer(ticket(tokens=401), 0.0)
    assert queue.offer(ticket(tokens=400), 0.0) == []


def test_what_is_larger_than_the_whole_queue_may_be_in_it_alone() -> None:
    queue = FairQueue(QueueLimits(max_requests=100, max_tokens=1000))
    assert queue.offer(ticket(tokens=5000), 0.0) == []
    queue.check()
    with pytest.raises(QueueRefusal):
        queue.offer(ticket(tokens=1), 0.0)


def test_a_better_class_pushes_out_the_newest_of_the_lowest() -> None:
    old, new = ticket("a", "batch"), ticket("a", "batch")
    queue = full(old, new, ticket("a", "standard"))
    assert queue.offer(ticket("b", "interactive"), 0.0) == [new]
    assert queue.offer(ticket("b", "interactive"), 0.0) == [old]


def test_a_large_newcomer_pushes_out_as_many_as_it_needs_and_no_more() -> None:
    queue = full(*(ticket("a", "batch", tokens=100) for _ in range(10)), max_tokens=1000)
    displaced = queue.offer(ticket("b", "interactive", tokens=250), 0.0)
    assert len(displaced) == 3
    queue.check()


def test_the_top_class_is_refused_only_when_nothing_lower_waits() -> None:
    queue = full(ticket("a", "batch"), ticket("a", "standard"), ticket("a", "interactive"))
    assert len(queue.offer(ticket("b", "interactive"), 0.0)) == 1
    assert len(queue.offer(ticket("b", "interactive"), 0.0)) == 1
    assert queue.counts == {"interactive": 3, "standard": 0, "batch": 0}
    with pytest.raises(QueueRefusal):
        queue.offer(ticket("b", "interactive"), 0.0)


def test_a_lower_class_pushes_out_nobody_above_it() -> None:
    queue = full(ticket("a", "interactive"), ticket("a", "standard"))
    with pytest.raises(QueueRefusal):
        queue.offer(ticket("b", "batch"), 0.0)


def test_a_tenant_under_its_share_pushes_out_the_newest_of_the_one_furthest_over() -> None:
    flood = [ticket("a") for _ in range(8)]
    queue = full(*flood, ticket("c"), ticket("c"))
    assert queue.offer(ticket("b"), 0.0) == [flood[-1]]


def test_a_flood_can_hold_its_share_and_no_more_once_others_come() -> None:
    queue = full(*(ticket("a") for _ in range(12)))
    for tenant in "bbbbcccc":
        assert [each.tenant for each in queue.offer(ticket(tenant), 0.0)] == ["a"]
    for tenant in "abc":
        with pytest.raises(QueueRefusal):
            queue.offer(ticket(tenant), 0.0)


def test_a_heavier_tenants_share_is_larger() -> None:
    queue = full(*(ticket("a") for _ in range(12)))
    for _ in range(9):
        queue.offer(ticket("b", weight=3.0), 0.0)
    with pytest.raises(QueueRefusal):
        queue.offer(ticket("b", weight=3.0), 0.0)


def test_few_large_requests_count_as_much_as_many_small_ones() -> None:
    small = [ticket("a", tokens=10) for _ in range(10)]
    large = [ticket("b", tokens=450) for _ in range(2)]
    queue = FairQueue(QueueLimits(max_requests=100, max_tokens=1000))
    for each in (*small, *large):
        queue.offer(each, 0.0)
    assert queue.offer(ticket("a", tokens=10), 0.0) == [large[-1]]


def test_a_refusal_pushes_nobody_out() -> None:
    queue = full(ticket("a", "batch", tokens=10), ticket("a", "interactive", tokens=990), max_tokens=1000)
    with pytest.raises(QueueRefusal):
        queue.offer(ticket("b", "standard", tokens=500), 0.0)
    assert queue.counts == {"interactive": 1, "standard": 0, "batch": 1}


def test_a_deadline_that_has_passed_is_refused_with_503() -> None:
    with pytest.raises(QueueRefusal, match="had passed") as refused:
        FairQueue(QueueLimits()).offer(ticket(deadline=5.0), 5.0)
    assert refused.value.status == 503
    assert refused.value.reason == "deadline"


def test_a_deadline_that_cannot_be_met_is_refused_at_once_with_the_wait() -> None:
    queue = FairQueue(QueueLimits())
    now = saturate(queue, tokens=100, seconds=1.0)  # 100 tokens a second
    for _ in range(19):
        queue.offer(ticket("measured", at=now), now)
    waiting = ticket("measured", deadline=now + 15, at=now)
    with pytest.raises(QueueRefusal, match=r"wait about (19|2\d)\.\d s .* deadline is in 15\.0 s") as refused:
        queue.offer(waiting, now)
    assert refused.value.status == 503
    assert refused.value.retry_after == pytest.approx(20, rel=0.2)
    waiting.deadline = now + 30
    assert queue.offer(waiting, now) == []


def test_another_tenant_and_a_better_class_wait_less() -> None:
    queue = FairQueue(QueueLimits())
    now = saturate(queue, tokens=100, seconds=1.0)
    for _ in range(19):
        queue.offer(ticket("measured", at=now), now)
    same, other, better = ticket("measured"), ticket("other"), ticket("other", "interactive")
    waits = [queue.wait(each) or 0.0 for each in (same, other, better, ticket("other", "batch"))]
    assert waits[2] == 0
    assert waits[1] <= 1.5
    assert waits[0] == pytest.approx(20, rel=0.2)
    assert waits[3] == waits[0]


def test_of_a_flood_only_what_goes_before_is_waited_for() -> None:
    queue = FairQueue(QueueLimits())
    now = saturate(queue, tokens=100, seconds=1.0)
    for tenant in ["measured"] * 100 + ["other"] * 4:
        queue.offer(ticket(tenant, at=now), now)
    assert queue.wait(ticket("other")) == pytest.approx(8, rel=0.2)


def test_in_a_queue_that_is_empty_again_nobody_waits() -> None:
    queue = FairQueue(QueueLimits())
    now = saturate(queue, tokens=100, seconds=1.0)
    for _ in range(len(queue)):
        queue.take(now, lambda *_: True)
    for _ in range(50):
        queue.offer(ticket("measured", at=now), now)
    assert queue.wait(ticket("measured")) == 0
    assert queue.offer(ticket("measured", deadline=now + 1), now) == []


def test_nobody_is_refused_for_a_wait_that_nobody_has_measured() -> None:
    queue = FairQueue(QueueLimits())
    for _ in range(500):
        queue.offer(ticket(), 0.0)
    queue.take(0.0, lambda *_: False)
    assert queue.wait(ticket()) is None
    assert queue.offer(ticket(deadline=0.1), 0.0) == []


def test_what_passes_straight_through_is_no_measure_of_capacity() -> None:
    queue = FairQueue(QueueLimits())
    for i in range(1000):
        queue.offer(ticket(tokens=10_000), i * 0.001)
        assert queue.take(i * 0.001, lambda *_: True)
        assert queue.take(i * 0.001, lambda *_: False) is None
    now = saturate(queue, tokens=100, seconds=1.0, start=10.0)
    for _ in range(9):
        queue.offer(ticket("measured", at=now), now)
    assert queue.wait(ticket("measured")) == pytest.approx(10, rel=0.2)


def test_a_queue_that_has_come_to_a_stop_is_expected_to_take_ever_longer() -> None:
    queue = FairQueue(QueueLimits())
    now = saturate(queue, tokens=100, seconds=1.0)
    queue.take(now + 60, lambda *_: False)
    wait = queue.wait(ticket("measured"))
    assert wait is not None
    assert wait > 30
    assert queue.retry_after(ticket("measured", tokens=10)) <= 300


def test_expired_tickets_come_out_once() -> None:
    queue = FairQueue(QueueLimits())
    late, kept = ticket(deadline=10.0), ticket(deadline=20.0)
    queue.offer(late, 0.0)
    queue.offer(kept, 0.0)
    assert queue.next_event(0.0) == 10.0
    assert queue.expire(9.9) == []
    assert queue.expire(10.0) == [late]
    assert queue.expire(10.0) == []
    assert queue.next_event(10.0) == 20.0
    assert len(queue) == 1


def test_an_expired_ticket_is_not_taken_but_left_for_expire() -> None:
    queue = FairQueue(QueueLimits())
    queue.offer(late := ticket(deadline=10.0), 0.0)
    assert queue.take(10.0, lambda *_: True) is None
    assert queue.next_event(10.0) == 10.0
    assert queue.expire(10.0) == [late]
    assert queue.next_event(10.0) is None


def test_a_client_that_leaves_after_its_deadline_is_not_reported_expired() -> None:
    queue = FairQueue(QueueLimits())
    queue.offer(late := ticket(deadline=10.0), 0.0)
    queue.take(10.0, lambda *_: True)
    queue.withdraw(late)
    assert queue.expire(11.0) == []


def test_a_taken_tickets_deadline_is_of_no_concern_any_more() -> None:
    queue = FairQueue(QueueLimits())
    queue.offer(ticket(deadline=10.0), 0.0)
    assert queue.take(1.0, lambda *_: True)
    assert queue.next_event(1.0) is None
    assert queue.expire(100.0) == []


def test_a_ticket_that_comes_back_with_more_time_has_it() -> None:
    queue = FairQueue(QueueLimits())
    queue.offer(again := ticket(deadline=10.0), 0.0)
    assert queue.take(1.0, lambda *_: True) is again
    again.deadline = 20.0
    queue.offer(again, 2.0)
    assert queue.next_event(2.0) == 20.0
    assert queue.expire(10.0) == []
    assert queue.expire(20.0) == [again]


def test_deadlines_of_tickets_that_have_gone_do_not_pile_up() -> None:
    queue = FairQueue(QueueLimits())
    for i in range(10_000):
        queue.offer(ticket(deadline=1e6), float(i))
        queue.take(float(i), lambda *_: True)
    queue.check()
