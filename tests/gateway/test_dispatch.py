"""From the queue to a replica: who goes next and where to, with the real queue and policies."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.gateway.backends import Backend, BackendError
from penstock.gateway.balance import POLICIES, PolicyOptions, Query
from penstock.gateway.dispatch import Dispatcher, Member, Waiting
from penstock.gateway.queue import LEVELS, FairQueue, QueueLimits, QueueRefusal, ServiceClass, Ticket
from tests.servers.asking import asked


class Replica:
    """A backend as the dispatcher sees it: a name, some room, and a state that the test sets."""

    operations = frozenset({"createChatCompletion"})
    upstream_model = "m"

    def __init__(
        self,
        name: str,
        capacity: int = 1,
        *,
        prioritizes: bool = False,
        restarts: bool = False,
        vision: bool = False,
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.prioritizes = prioritizes
        self.restarts = restarts
        self.vision = vision
        self.now = "healthy"

    @property
    def health(self) -> Replica:
        return self

    def state(self, now: float) -> str:
        return self.now

    def reason(self, now: float) -> str | None:
        return None if self.now == "healthy" else f"{self.name} is {self.now}"

    def load(self) -> None:
        return None


class Desk:
    """A dispatcher with replicas, and the requests that were brought to it."""

    def __init__(
        self, *replicas: Replica, policy: str = "least_tokens", share: int = 1, **limits: Any
    ) -> None:
        options = PolicyOptions(draw=random.Random(0).random, slow_start=0.0)
        self.dispatcher = Dispatcher(FairQueue(QueueLimits(**limits)), POLICIES[policy](options), share)
        self.numbers = 0
        for replica in replicas:
            self.add(replica)

    def add(self, replica: Any) -> None:
        self.dispatcher.add(replica, 1.0)

    def waiting(
        self,
        service_class: ServiceClass = "standard",
        *,
        choices: int = 1,
        tokens: int = 10,
        wait: float = 60.0,
        tenant: str = "t",
        fits: Callable[[Backend], bool] = lambda backend: True,
    ) -> Waiting:
        self.numbers += 1
        now = time.monotonic()
        ticket = Ticket(self.numbers, tenant, service_class, 1.0, tokens, now, now + wait)
        exchange = asked("createChatCompletion", {"messages": []}).exchange
        return Waiting(exchange, ticket, Query(tokens=tokens), choices, fits)

    def bring(self, *args: Any, **fields: Any) -> tuple[Waiting, asyncio.Task[Member]]:
        waiting = self.waiting(*args, **fields)
        return waiting, asyncio.create_task(self.dispatcher.place(waiting))

    async def placed(self, *args: Any, **fields: Any) -> tuple[Waiting, Member]:
        waiting, task = self.bring(*args, **fields)
        return waiting, await task

    def end(self, waiting: Waiting, member: Member, tokens: int = 10) -> None:
        self.dispatcher.leave(member, waiting)
        self.dispatcher.finished(waiting, tokens)

    def check_empty(self) -> None:
        """Nobody waits, and nobody holds a place."""
        assert len(self.dispatcher.queue) == 0
        assert not self.dispatcher._waiting
        assert not self.dispatcher._parked
        assert not self.dispatcher._places._held
        for member in self.dispatcher.members.values():
            assert (member.replica.requests, member.replica.tokens, len(member.running)) == (0, 0, 0)
            assert set(member.places.values()) == {0}
        self.dispatcher.queue.check()


async def settled() -> None:
    """Let everybody who can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_there_is_a_place_at_once_while_there_is_room_and_it_is_given_back() -> None:
    desk = Desk(Replica("a", 2))
    first, second = await desk.placed(), await desk.placed()
    _, third = desk.bring()
    await settled()
    assert not third.done()
    desk.end(*first)
    assert (await third).backend.name == "a"
    desk.end(*second)
    member = third.result()
    assert (member.replica.requests, member.replica.tokens) == (1, 10)


async def test_who_waits_goes_by_class_and_then_by_arrival() -> None:
    desk = Desk(Replica("a", 1, prioritizes=False))
    holder = await desk.placed()
    order: list[str] = []
    tasks = []
    for name, service_class in (
        ("b1", "batch"),
        ("s1", "standard"),
        ("s2", "standard"),
        ("i1", "interactive"),
    ):

        async def run(name: str = name, service_class: Any = service_class) -> None:
            place = await desk.placed(service_class)
            order.append(name)
            desk.end(*place)

        tasks.append(asyncio.create_task(run()))
        await settled()
    desk.end(*holder)
    await asyncio.gather(*tasks)
    assert order == ["i1", "s1", "s2", "b1"]
    desk.check_empty()


async def test_a_request_takes_as_many_places_as_it_has_choices() -> None:
    desk = Desk(Replica("a", 4))
    held = await desk.placed(choices=4)
    _, task = desk.bring()
    await settled()
    assert not task.done()
    desk.end(*held)
    await task


async def test_batch_work_leaves_room_where_nothing_can_overtake_it() -> None:
    desk = Desk(Replica("a", 4))
    for _ in range(3):
        await desk.placed("batch")
    _, fourth = desk.bring("batch")
    await settled()
    assert not fourth.done(), "three quarters are its share"
    assert (await desk.placed("standard"))[1].replica.requests == 4
    fourth.cancel()


async def test_urgent_work_overtakes_what_a_replica_with_priorities_has() -> None:
    desk = Desk(Replica("a", 2, prioritizes=True))
    for service_class in ("batch", "batch", "standard", "standard", "interactive", "interactive"):
        await desk.placed(service_class)
    for service_class in LEVELS:
        _, task = desk.bring(service_class)
        await settled()
        assert not task.done(), f"{service_class} is full with what is as urgent"
        task.cancel()


async def test_processes_that_share_a_replica_fill_it_together() -> None:
    desk = Desk(Replica("a", 4), share=2)
    for _ in range(2):
        await desk.placed()
    _, third = desk.bring()
    await settled()
    assert not third.done()
    third.cancel()


async def test_another_replica_is_tried_but_none_twice_and_none_that_is_out() -> None:
    desk = Desk(Replica("a"), Replica("b"), broken := Replica("c"))
    broken.now = "unhealthy"
    waiting, member = await desk.placed()
    first = member.backend.name
    desk.dispatcher.leave(member, waiting)
    again = desk.dispatcher.again(waiting, [first])
    assert again is not None
    assert again.backend.name == {"a": "b", "b": "a"}[first]
    desk.dispatcher.leave(again, waiting)
    assert desk.dispatcher.again(waiting, ["a", "b"]) is None
    desk.dispatcher.finished(waiting, 10)
    desk.check_empty()


async def test_only_replicas_that_can_answer_are_chosen() -> None:
    desk = Desk(Replica("blind", 9), Replica("seeing", 9, vision=True))
    for _ in range(4):
        _, member = await desk.placed(fits=lambda backend: backend.vision)
        assert member.backend.name == "seeing"


async def test_without_anybody_who_can_answer_the_reason_is_told_at_once() -> None:
    desk = Desk(out := Replica("a"))
    out.now = "unhealthy"
    with pytest.raises(BackendError, match="a is unhealthy") as caught:
        await desk.placed()
    assert caught.value.status == 503
    with pytest.raises(BackendError):
        await Desk().placed()
    with pytest.raises(BackendError):
        await desk.placed(fits=lambda backend: False)
    desk.check_empty()


async def test_those_who_wait_for_a_replica_that_is_lost_are_told() -> None:
    desk = Desk(replica := Replica("a"))
    held = await desk.placed()
    _, task = desk.bring()
    await settled()
    replica.now = "dead"
    desk.dispatcher.tick()
    with pytest.raises(BackendError, match="a is dead"):
        await task
    desk.end(*held)
    desk.check_empty()


async def test_a_replica_that_is_started_again_is_waited_for() -> None:
    desk = Desk(replica := Replica("a", restarts=True))
    replica.now = "dead"
    _, task = desk.bring()
    await settled()
    desk.dispatcher.tick()
    assert not task.done()
    replica.now = "healthy"
    desk.dispatcher.tick()
    assert (await task).backend.name == "a"


async def test_a_replica_that_comes_takes_those_who_wait() -> None:
    desk = Desk(Replica("a"))
    await desk.placed()
    _, task = desk.bring()
    await settled()
    desk.add(Replica("b"))
    assert (await task).backend.name == "b"


async def test_what_a_lost_replica_has_not_begun_is_taken_back() -> None:
    desk = Desk(Replica("b"), lost := Replica("a"), policy="round_robin")
    begun, unbegun, over = asyncio.Event(), asyncio.Event(), asyncio.Event()
    caught: list[str] = []

    async def run(starts: bool) -> None:
        waiting, member = await desk.placed(fits=lambda backend: backend.name == "a")
        if starts:
            waiting.exchange.call.status = 200
        (begun if starts else unbegun).set()
        try:
            await over.wait()
        except asyncio.CancelledError:
            assert isinstance(waiting.exchange.aborted, BackendError)
            caught.append("taken back")
        else:
            caught.append("finished")
        desk.end(waiting, member)

    lost.capacity = 2
    tasks = [asyncio.create_task(run(starts)) for starts in (True, False)]
    await asyncio.gather(begun.wait(), unbegun.wait())
    lost.now = "unhealthy"
    desk.dispatcher.tick()
    await settled()
    over.set()
    await asyncio.gather(*tasks)
    assert sorted(caught) == ["finished", "taken back"]
    desk.check_empty()


async def test_nothing_is_taken_back_where_nobody_else_could_answer() -> None:
    desk = Desk(replica := Replica("a", restarts=True))
    waiting, member = await desk.placed()
    replica.now = "unhealthy"
    desk.dispatcher.tick()
    assert waiting.exchange.aborted is None
    desk.end(waiting, member)


async def test_a_replica_that_leaves_finishes_what_it_has_and_gets_nothing_more() -> None:
    desk = Desk(Replica("a", 2))
    one, two = await desk.placed(), await desk.placed()
    left = desk.dispatcher.remove("a")
    assert left is one[1]
    idle: list[str] = []
    left.when_idle = lambda: idle.append("now")
    desk.add(Replica("b"))
    assert (await desk.placed())[1].backend.name == "b"
    desk.end(*one)
    assert not idle
    desk.end(*two)
    assert idle == ["now"]
    assert desk.dispatcher.remove("a") is None


async def test_a_better_class_takes_the_place_of_a_lower_one_in_a_full_queue() -> None:
    desk = Desk(Replica("a"), max_requests=1)
    held = await desk.placed()
    _, batch = desk.bring("batch")
    await settled()
    _, urgent = desk.bring("interactive")
    with pytest.raises(QueueRefusal) as caught:
        await batch
    assert (caught.value.status, caught.value.reason) == (429, "full")
    with pytest.raises(QueueRefusal):
        await desk.placed("batch")
    desk.end(*held)
    await urgent


async def test_whose_turn_does_not_come_in_time_is_refused() -> None:
    desk = Desk(Replica("a"))
    held = await desk.placed()
    _, task = desk.bring(wait=0.02)
    await asyncio.sleep(0.03)
    desk.dispatcher.tick()
    with pytest.raises(QueueRefusal) as caught:
        await task
    assert (caught.value.status, caught.value.reason) == (503, "deadline")
    assert caught.value.retry_after >= 1
    desk.end(*held)
    desk.check_empty()


async def test_one_who_leaves_in_the_moment_of_getting_a_place_gives_it_back() -> None:
    desk = Desk(Replica("a"))
    held = await desk.placed()
    _, task = desk.bring()
    await settled()
    desk.end(*held)  # the place is given; the task does not know it yet
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    desk.check_empty()
    desk.end(*await desk.placed())


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_no_place_is_lost(seed: int, policy: str) -> None:
    """Requests come, are cancelled, answered, retried; replicas come, go, fail and recover."""
    draw = random.Random(seed)
    replicas = [
        Replica(
            f"r{number}", draw.randrange(1, 4), prioritizes=draw.random() < 0.5, restarts=draw.random() < 0.5
        )
        for number in range(3)
    ]
    desk = Desk(*replicas, policy=policy, max_requests=6, max_tokens=200)
    dispatcher = desk.dispatcher
    outcomes: list[str] = []

    async def request() -> None:
        service_class = draw.choice(list(LEVELS))
        waiting = desk.waiting(
            service_class,
            choices=draw.randrange(1, 3),
            tokens=draw.randrange(60),
            tenant=draw.choice("abc"),
            wait=draw.choice([0.005, 5.0]),
        )
        try:
            member: Member | None = await dispatcher.place(waiting)
        except (QueueRefusal, BackendError) as error:
            outcomes.append(type(error).__name__)
            return
        tried: list[str] = []
        try:
            while member is not None:
                tried.append(member.backend.name)
                try:
                    for _ in range(draw.randrange(4)):
                        await asyncio.sleep(0)
                finally:
                    dispatcher.leave(member, waiting)
                member = dispatcher.again(waiting, tried) if draw.random() < 0.4 else None
            outcomes.append("answered")
        finally:
            dispatcher.finished(waiting, draw.randrange(60))

    tasks: list[asyncio.Task[None]] = []
    for number in range(400):
        event = draw.random()
        if event < 0.5:
            tasks.append(asyncio.create_task(request()))
        elif event < 0.65 and tasks:
            draw.choice(tasks).cancel()
        elif event < 0.75:
            draw.choice(replicas).now = draw.choice(["healthy", "healthy", "unhealthy", "dead", "starting"])
        elif event < 0.8:
            gone = draw.choice(replicas)
            dispatcher.remove(gone.name)
            fresh = Replica(f"n{number}", draw.randrange(1, 4))
            replicas[replicas.index(gone)] = fresh
            desk.add(fresh)
        else:
            dispatcher.tick()
        if draw.random() < 0.5:
            await asyncio.sleep(0)
        dispatcher.queue.check()
    for replica in replicas:
        replica.now = "healthy"
    deadline = time.monotonic() + 10
    while not all(task.done() for task in tasks):
        assert time.monotonic() < deadline, "somebody waits for ever"
        dispatcher.tick()
        await asyncio.sleep(0.001)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, asyncio.CancelledError), error
    desk.check_empty()
    assert "answered" in outcomes


def sees(backend: Backend) -> bool:
    return backend.vision


async def test_a_replica_that_alone_fits_gets_no_more_than_it_has_room_for() -> None:
    desk = Desk(Replica("blind", 50), Replica("sees", 2, vision=True), policy="round_robin")
    brought = [desk.bring(fits=sees) for _ in range(8)]
    await settled()
    placed = [(waiting, task.result()) for waiting, task in brought if task.done() and not task.exception()]
    refused = [task for _, task in brought if task.done() and task.exception()]
    assert [member.backend.name for _, member in placed] == ["sees", "sees"]
    assert all(isinstance(task.exception(), QueueRefusal) for task in refused)
    # Whoever fits anywhere is not held up by those who wait for that one.
    other, elsewhere = await desk.placed(fits=lambda backend: not backend.vision)
    desk.end(other, elsewhere)
    while placed:
        desk.end(*placed.pop())
        await settled()
        placed += [
            (waiting, task.result())
            for waiting, task in brought
            if task.done()
            and not task.exception()
            and waiting.exchange in task.result().running
            and (waiting, task.result()) not in placed
        ]
    assert all(task.done() for _, task in brought)
    desk.check_empty()


async def test_who_waits_for_the_one_replica_that_fits_may_leave_or_be_too_late() -> None:
    desk = Desk(Replica("blind", 50), Replica("sees", 1, vision=True))
    first, seat = await desk.placed(fits=sees)
    _, leaves = desk.bring(fits=sees)
    await settled()
    leaves.cancel()
    await settled()
    _, late = desk.bring(fits=sees, wait=0.05)
    await settled()
    await asyncio.sleep(0.06)
    desk.dispatcher.tick()
    with pytest.raises(QueueRefusal, match="deadline"):
        await late
    desk.end(first, seat)
    desk.check_empty()


async def test_who_gives_up_before_the_one_replica_that_fits_has_room_is_charged_nothing() -> None:
    desk = Desk(Replica("blind", 50), Replica("sees", 1, vision=True))
    first, seat = await desk.placed(fits=sees)
    flow = desk.dispatcher.queue._classes["standard"]._flows["t"]
    before = flow.start
    _, leaves = desk.bring(fits=sees)
    await settled()
    assert flow.start > before, "its turn had come"
    leaves.cancel()
    await settled()
    assert flow.start == before
    desk.end(first, seat)
    desk.check_empty()
