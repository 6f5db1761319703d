"""In which order the queue gives its tickets out."""

from __future__ import annotations

from itertools import count

import pytest

from penstock.gateway.queue import FairQueue, QueueLimits, ServiceClass, Ticket

IDS = count()


def ticket(
    tenant: str = "a",
    service_class: ServiceClass = "standard",
    *,
    at: float = 0.0,
    tokens: int = 100,
    weight: float = 1.0,
) -> Ticket:
    return Ticket(next(IDS), tenant, service_class, weight, tokens, at)


def queue_of(*tickets: Ticket, **limits: float) -> FairQueue:
    queue = FairQueue(QueueLimits(**limits))  # type: ignore[arg-type]
    for each in tickets:
        assert queue.offer(each, each.arrived) == []
    return queue


def anywhere(_: ServiceClass, tenant: str) -> bool:
    return True


def drain(queue: FairQueue, now: float = 0.0) -> list[Ticket]:
    taken = []
    while (each := queue.take(now, anywhere)) is not None:
        queue.check()
        taken.append(each)
    return taken


def tenants(tickets: list[Ticket]) -> str:
    return "".join(each.tenant for each in tickets)


def test_an_empty_queue_gives_nothing() -> None:
    assert FairQueue(QueueLimits()).take(0.0, anywhere) is None


def test_a_tenants_tickets_go_out_in_the_order_they_came() -> None:
    tickets = [ticket(at=i, tokens=1000 - i) for i in range(20)]
    assert drain(queue_of(*tickets), 20.0) == tickets


def test_better_classes_go_first() -> None:
    batch, standard, interactive = ticket("a", "batch"), ticket("a"), ticket("a", "interactive")
    assert drain(queue_of(batch, standard, interactive)) == [interactive, standard, batch]


def test_tenants_of_a_class_take_turns_whoever_came_first() -> None:
    flood = [ticket("a") for _ in range(5)]
    assert tenants(drain(queue_of(*flood, ticket("b"), ticket("b")))) == "ababaaa"


def test_turns_are_by_tokens_not_by_requests() -> None:
    large = [ticket("a", tokens=300) for _ in range(3)]
    small = [ticket("b", tokens=100) for _ in range(9)]
    taken = drain(queue_of(*large, *small))
    assert tenants(taken) == "abbbabbbabbb"


def test_a_heavier_tenant_has_more_turns() -> None:
    queue = queue_of(*(ticket("a", weight=3.0) for _ in range(9)), *(ticket("b") for _ in range(3)))
    taken = tenants(drain(queue))
    assert [taken[:4].count("a"), taken[:8].count("a")] == [3, 6]


def test_time_in_which_a_tenant_asked_for_nothing_is_worth_nothing() -> None:
    queue = queue_of(*(ticket("a") for _ in range(50)), ticket("b"))
    for _ in range(40):
        queue.take(0.0, anywhere)
    for _ in range(5):
        queue.offer(ticket("b"), 0.0)
    assert tenants(drain(queue)[:8]) in ("abababab", "babababa")


def test_a_tenant_is_charged_what_it_really_used_not_what_it_might_have() -> None:
    queue = FairQueue(QueueLimits())
    for _ in range(4):
        queue.offer(ticket("a", tokens=4000), 0.0)
        queue.offer(ticket("b", tokens=100), 0.0)
    first = queue.take(0.0, anywhere)
    assert first is not None
    assert first.tenant == "a"
    queue.served(first, 100, 1.0)
    assert sorted(tenants([each for _ in range(2) if (each := queue.take(1.0, anywhere))])) == ["a", "b"]


def test_without_word_of_what_was_used_the_estimate_stands() -> None:
    queue = queue_of(*(ticket("a", tokens=400) for _ in range(4)), *(ticket("b") for _ in range(4)))
    assert tenants(drain(queue)) == "abbbbaaa"


def test_what_a_tenant_used_teaches_what_its_next_requests_will_cost() -> None:
    queue = FairQueue(QueueLimits())
    for _ in range(3):
        queue.offer(ticket("a", tokens=1000), 0.0)
        taken = queue.take(0.0, anywhere)
        assert taken is not None
        queue.served(taken, 50, 0.0)
    queue.offer(learned := ticket("a", tokens=2000), 0.0)
    queue.offer(unknown := ticket("b", tokens=2000), 0.0)
    assert learned.cost == pytest.approx(100)
    assert unknown.cost == 2000


def test_a_try_that_never_ran_costs_its_tenant_nothing_and_teaches_nothing() -> None:
    queue = FairQueue(QueueLimits())
    queue.offer(failed := ticket("a", tokens=5000), 0.0)
    assert queue.take(0.0, anywhere) is failed
    queue.served(failed, 0, 0.0)
    for tenant in "abab":
        queue.offer(ticket(tenant, tokens=100), 0.0)
    assert [each.cost for each in drain(queue)] == [100] * 4
    assert failed.cost == 5000


def test_a_refund_is_no_credit_for_idleness() -> None:
    """What was charged in advance is given back, but not below where the others were meanwhile."""
    queue = FairQueue(QueueLimits())
    queue.offer(early := ticket("a", tokens=10_000), 0.0)
    assert queue.take(0.0, anywhere) is early
    for _ in range(100):
        queue.offer(ticket("b"), 0.0)
    for _ in range(50):
        queue.take(0.0, anywhere)
    for _ in range(10):
        queue.offer(ticket("a"), 0.0)
    queue.served(early, 10, 0.0)
    assert tenants(drain(queue)[:10]).count("a") in (5, 6)


def test_a_newcomer_does_not_wait_for_what_another_was_given_back() -> None:
    queue = FairQueue(QueueLimits())
    for _ in range(30):
        queue.offer(ticket("a", tokens=4000), 0.0)
    for each in [queue.take(0.0, anywhere) for _ in range(10)]:
        assert each is not None
        queue.served(each, 10, 0.0)
    queue.offer(ticket("b"), 0.0)
    assert "b" in tenants(drain(queue)[:2])


def test_a_ticket_that_comes_back_goes_to_the_front_of_its_tenant() -> None:
    first, second = ticket(at=0.0), ticket(at=1.0)
    queue = queue_of(first, second)
    assert queue.take(1.0, anywhere) is first
    queue.served(first, 0, 2.0)
    queue.offer(first, 2.0)
    assert drain(queue, 2.0) == [first, second]


def test_a_class_without_room_is_passed_over_and_loses_nothing() -> None:
    interactive, batch = ticket("a", "interactive"), ticket("a", "batch")
    queue = queue_of(interactive, batch)
    assert queue.take(0.0, lambda service_class, tenant: service_class == "batch") is batch
    assert queue.take(0.0, lambda service_class, tenant: service_class == "batch") is None
    assert queue.take(0.0, anywhere) is interactive


def test_room_that_is_kept_for_a_better_class_is_not_given_away() -> None:
    queue = queue_of(ticket("a", "batch"), ticket("a", "standard"))
    assert queue.take(0.0, lambda service_class, tenant: service_class == "interactive") is None
    assert len(queue) == 2


def test_who_has_waited_long_enough_goes_before_a_newcomer_of_a_better_class() -> None:
    old, young = ticket("a", "batch", at=0.0), ticket("a", "batch", at=11.0)
    new = ticket("b", "interactive", at=21.0)
    assert drain(queue_of(old, young, new, ageing_seconds=10.0, aged_share=1.0), 21.0) == [old, new, young]


def test_a_backlog_that_has_aged_gets_a_share_and_no_more() -> None:
    queue = queue_of(*(ticket("a", "batch") for _ in range(50)), ageing_seconds=10.0, aged_share=0.25)
    for _ in range(40):
        queue.offer(ticket("b", "interactive", at=100.0), 100.0)
    taken = [queue.take(100.0, anywhere) for _ in range(40)]
    assert sum(each is not None and each.service_class == "batch" for each in taken) == 10


def test_what_is_withdrawn_is_gone_and_unknown_tickets_are_no_error() -> None:
    kept, left = ticket(), ticket()
    queue = queue_of(left, kept)
    queue.withdraw(left)
    queue.withdraw(left)
    queue.withdraw(ticket())
    assert drain(queue) == [kept]
    queue.withdraw(kept)
    assert len(queue) == 0


def test_a_tenant_whose_first_ticket_left_is_not_charged_for_it() -> None:
    queue = queue_of(left := ticket("a", tokens=10_000), ticket("b"), ticket("a"), ticket("b"))
    queue.withdraw(left)
    assert tenants(drain(queue)) == "abb"


def test_the_queue_says_what_it_holds() -> None:
    queue = queue_of(ticket(tokens=5), ticket("b", "batch", tokens=7))
    assert len(queue) == 2
    assert queue.tokens == 12
    assert queue.counts == {"interactive": 0, "standard": 1, "batch": 1}


def test_thousands_of_tenants_that_came_and_went_are_forgotten() -> None:
    queue = FairQueue(QueueLimits())
    for i in range(5000):
        queue.offer(ticket(f"tenant {i}"), float(i))
        taken = queue.take(float(i), anywhere)
        assert taken is not None
        queue.served(taken, 100, float(i))
    flows = queue._classes["standard"]._flows
    assert len(flows) < 1000


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_is_no_share_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="weight"):
        FairQueue(QueueLimits()).offer(ticket(weight=weight), 0.0)


def test_a_ticket_cannot_be_in_the_queue_twice() -> None:
    queue = queue_of(one := ticket())
    with pytest.raises(ValueError, match="already"):
        queue.offer(one, 0.0)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_requests": 0},
        {"max_tokens": 0},
        {"ageing_seconds": 0.0},
        {"ageing_seconds": float("nan")},
        {"aged_share": 0.0},
        {"aged_share": 1.5},
    ],
)
def test_limits_without_sense_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        QueueLimits(**limits)  # type: ignore[arg-type]
