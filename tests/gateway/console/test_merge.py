"""From the parts of several processes to one state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.aio.books import RouteTally
from penstock.gateway.console import merge
from penstock.gateway.console.part import ModelPart, Part, request_now
from penstock.observe.record import Phase, RequestRecord
from penstock.observe.snapshot import AlertNow, GpuNow, ReplicaNow
from penstock.observe.window import WINDOWS, Second, Sums, bucket


def part(**fields: Any) -> Part:
    content: dict[str, Any] = {
        "started": 100.0,
        "draining": False,
        "sums": {seconds: {} for seconds in WINDOWS},
        "history": {},
        "models": [],
        "tenants": {},
        "recent": [],
        "routing": None,
        **fields,
    }
    return Part(**content)


def model(*replicas: ReplicaNow, waiting: int = 0) -> ModelPart:
    return ModelPart(name="chat", waiting={"standard": waiting}, growth=0.5, replicas=list(replicas))


def test_the_fewest_replicas_that_a_process_has_count() -> None:
    def seen(healthy: int) -> Part:
        return part(models=[msgspec.structs.replace(model(), healthy=healthy)])

    [watched] = merge.watched(merge.merged([seen(2), seen(0), seen(1)]))
    assert watched.healthy == 0


def test_each_gpu_is_judged_without_what_its_own_engines_do_not_use() -> None:
    gpus = [GpuNow(index=at, name="H200", memory_used=90, memory_total=100) for at in (0, 1)]
    whole = merge.merged([part(gpus=gpus, idle_kv_bytes={1: 60}), part()])
    assert merge.gpu_memory(whole) == {0: (90, 100), 1: (30, 100)}


def test_what_one_process_knows_to_fire_fires_since_the_first_knew() -> None:
    def alert(name: str, since: float, **labels: str) -> AlertNow:
        return AlertNow(name=name, severity="page", summary="", since=since, labels=labels)

    fresh, old = part(alerts=[alert("A", 9.0, model="x")]), part(alerts=[alert("A", 5.0, model="x")])
    other = part(alerts=[alert("A", 7.0, model="y"), alert("B", 8.0)])
    seen = merge.merged([fresh, old, other, part()]).alerts
    assert {(each.name, each.labels.get("model"), each.since) for each in seen} == {
        ("A", "x", 5.0),
        ("A", "y", 7.0),
        ("B", None, 8.0),
    }


def test_servers_that_do_not_say_what_was_cached_have_no_share_of_it() -> None:
    quiet, engine = (
        ReplicaNow(name="a", state="healthy"),
        ReplicaNow(name="b", state="healthy", prefix_hits=0.0),
    )
    asked = Sums(requests=3, input_tokens=100)
    assert merge.model_now(model(quiet), asked, 60.0).prefix_hits is None
    assert merge.model_now(model(engine), asked, 60.0).prefix_hits == 0.0
    told = Sums(requests=3, input_tokens=100, cached_tokens=20)
    assert merge.model_now(model(quiet), told, 60.0).prefix_hits == 0.2


def test_a_part_survives_its_way_to_another_process() -> None:
    sums = {60: {"chat": Sums(requests=2, ttft={bucket(0.1): 2}, causes={"queued": 1})}}
    sent = part(sums=sums, history={7: Second(1, 2, 3, {1: 1})}, routing={"low": RouteTally(requests=3)})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Part) == sent


def test_counts_of_processes_add_up() -> None:
    one = part(
        sums={seconds: {"chat": Sums(requests=2, ttft={5: 1})} for seconds in WINDOWS},
        history={7: Second(requests=2, waiting=1), 8: Second(requests=1)},
        models=[model(ReplicaNow(name="a", state="healthy", requests=3, capacity=8, running=5), waiting=2)],
        tenants={"acme": 2},
        started=50.0,
    )
    two = part(
        sums={seconds: {"chat": Sums(requests=3, ttft={5: 1, 6: 1})} for seconds in WINDOWS},
        history={7: Second(requests=3, waiting=4)},
        models=[model(ReplicaNow(name="a", state="healthy", requests=1, capacity=8, running=5), waiting=1)],
        tenants={"acme": 1, "other": 1},
    )
    whole = merge.merged([one, two])
    assert whole.started == 50.0
    assert whole.sums[60]["chat"].requests == 5
    assert whole.sums[60]["chat"].ttft == {5: 2, 6: 1}
    assert whole.history[7] == Second(requests=5, waiting=5)
    assert whole.tenants == {"acme": 3, "other": 1}
    [chat] = whole.models
    assert chat.waiting == {"standard": 3}
    assert chat.growth == 1.0
    [replica] = chat.replicas
    assert (replica.requests, replica.capacity) == (4, 8)
    assert replica.running == 5, "what the replica says of itself is one account, told twice"


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        (("healthy", "unhealthy"), "unhealthy"),
        (("starting", "healthy"), "starting"),
        (("drained", "healthy"), "drained"),
        (("dead", "unhealthy"), "dead"),
    ],
)
def test_the_worst_that_a_process_says_of_a_replica_is_shown(states: tuple[str, str], shown: str) -> None:
    parts = [part(models=[model(ReplicaNow(name="a", state=state, reason=state))]) for state in states]
    [replica] = merge.merged(parts).models[0].replicas
    assert (replica.state, replica.reason) == (shown, shown)


def test_a_replica_that_only_one_process_knows_is_shown() -> None:
    one, two = ReplicaNow(name="a", state="healthy"), ReplicaNow(name="b", state="healthy")
    whole = merge.merged([part(models=[model(one)]), part(models=[model(one, two)])])
    assert [replica.name for replica in whole.models[0].replicas] == ["a", "b"]


def test_requests_are_in_the_order_in_which_they_ended() -> None:
    def ended(at: float) -> Part:
        record = RequestRecord(
            f"{at:g}", "createChatCompletion", at - 5, 0.0, phases=[Phase("queue", at - 5, at)]
        )
        record.ended = at
        return part(recent=[request_now(record)])

    whole = merge.merged([ended(10.0), ended(30.0), ended(20.0)])
    assert [request.id for request in whole.recent] == ["30", "20", "10"]


def test_savings_are_net_of_what_routing_costs() -> None:
    dollar = 10**12
    low = RouteTally(
        requests=3, cost=dollar, expert_cost=8 * dollar, classifier_cost=dollar, as_good=9, worse=1
    )
    top = RouteTally(requests=1, by_expert=1, cost=2 * dollar, expert_cost=2 * dollar, discarded=2)
    shown = merge.routing_now({"low": low, "top": top}, {"low": "small", "top": "large"})
    assert (shown.answers, shown.spent, shown.always_expert, shown.overhead) == (4, 3.0, 10.0, 1.0)
    assert shown.savings == pytest.approx(0.6)
    assert [(tier.name, tier.model, tier.share) for tier in shown.tiers] == [
        ("low", "small", 0.75),
        ("top", "large", 0.25),
    ]
    assert (shown.tiers[0].quality, shown.tiers[0].checked) == (0.9, 10)
    assert (shown.tiers[1].quality, shown.tiers[1].escalated) == (None, 2)


def test_of_nothing_nothing_is_made_up() -> None:
    shown = merge.model_now(model(), Sums(), 60.0)
    assert shown.traffic.ttft.p99 is None
    assert (shown.kv_usage, shown.prefix_hits, shown.dollars_per_million) == (None, None, None)
    assert merge.routing_now({"low": RouteTally()}, {}).savings is None
