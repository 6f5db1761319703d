"""What several processes have measured, as one page."""

from __future__ import annotations

import asyncio
import random

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from penstock.config import GatewayConfig, ObjectivesConfig
from penstock.observe.catalogue import Families
from penstock.observe.merge import Part, Retired, add, grows, settle
from penstock.observe.metrics import Metrics
from penstock.observe.page import pieces, text


def page(asked: int, seconds: list[float], *, healthy: float = 1.0, route: str = "/a") -> Part:
    metrics = Metrics()
    families = metrics.families
    families.http.labels(route, "GET", "200").inc(asked)
    for value in seconds:
        families.route_seconds.labels().observe(value)
    families.healthy.labels("m", "r 1").set(healthy)
    families.waiting_tokens.labels("m").set(asked)
    return part_of(metrics)


def part_of(metrics: Metrics) -> Part:
    return msgspec.msgpack.decode(asyncio.run(metrics.part()), type=Part)


def merged(parts: list[Part], gone: Part | None = None, retired: Retired | None = None) -> bytes:
    families = Families()
    for part in parts:
        add(families, part)
    if gone is not None:
        add(families, gone, grows)
    if retired is not None:
        add(families, retired.part())
    settle(families)
    return text([line for piece in pieces(families, vllm_names=True) for line in piece])


def samples(text: bytes) -> dict[tuple[str, str], float]:
    return {
        (
            sample.name,
            ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_what_each_has_counted_is_added_up() -> None:
    found = samples(merged([page(3, [0.0005, 5.0]), page(4, [0.005])]))
    assert found[("penstock_http_requests_total", "method=GET,route=/a,status=200")] == 7
    assert found[("penstock_route_seconds_bucket", "le=0.001")] == 1
    assert found[("penstock_route_seconds_bucket", "le=0.01")] == 2
    assert (
        found[("penstock_route_seconds_bucket", "le=+Inf")]
        == found[("penstock_route_seconds_count", "")]
        == 3
    )
    assert found[("penstock_route_seconds_sum", "")] == 5.0055
    assert found[("penstock_queue_tokens", "model_name=m")] == 7


def test_what_all_say_of_the_same_thing_is_not_added_up() -> None:
    for pair, healthy in (((1.0, 1.0), 1), ((0.0, 1.0), 0), ((1.0, 0.0), 0), ((0.0, 0.0), 0)):
        found = samples(merged([page(1, [], healthy=state) for state in pair]))
        assert found[("penstock_replica_healthy", "model_name=m,replica=r 1")] == healthy
    for pair in ((1.0, 2.0), (2.0, 1.0)):
        parts = []
        for value in pair:
            metrics = Metrics()
            metrics.families.replica_capacity.labels("m", "r 1").set(value)
            parts.append(part_of(metrics))
        assert samples(merged(parts))[("penstock_replica_capacity", "model_name=m,replica=r 1")] == 2


def test_what_only_one_has_is_there_and_each_family_is_described_once() -> None:
    text = merged([page(1, []), page(2, [], route="/b")])
    assert samples(text)[("penstock_http_requests_total", "method=GET,route=/b,status=200")] == 2
    assert text.count(b"# TYPE penstock_http_requests_total counter") == 1
    assert text.endswith(b"\n")


def test_one_part_means_the_same_as_its_page() -> None:
    metrics = Metrics()
    metrics.families.route_seconds.labels().observe(0.2)
    metrics.families.tokens.labels("m", 'a"b\n', "prompt").inc(0.1 + 0.2)
    alone, together = samples(metrics.render()), samples(merged([part_of(metrics)]))
    moving = {key for key in alone if key[0].startswith("penstock_process_")}
    assert alone.keys() == together.keys()
    assert {key: alone[key] for key in alone.keys() - moving} == {
        key: together[key] for key in alone.keys() - moving
    }


def test_of_a_process_that_is_gone_the_counts_stay_and_the_gauges_do_not() -> None:
    found = samples(merged([page(3, [0.2])], gone=page(4, [0.3], route="/b")))
    assert found[("penstock_http_requests_total", "method=GET,route=/b,status=200")] == 4
    assert found[("penstock_route_seconds_count", "")] == 2
    assert found[("penstock_queue_tokens", "model_name=m")] == 3


def test_what_predecessors_had_counted_is_counted_for_good_and_an_engines_own_account_is_not() -> None:
    retired = Retired()
    for asked in (4, 5):
        metrics = Metrics()
        metrics.families.http.labels("/a", "GET", "200").inc(asked)
        metrics.families.generated_tokens.labels("m", "0").value = 1000.0 * asked
        metrics.families.waiting_tokens.labels("m").set(7)
        metrics.families.route_seconds.labels().observe(0.2)
        retired.take(part_of(metrics))
    metrics = Metrics()
    metrics.families.http.labels("/a", "GET", "200").inc(1)
    metrics.families.generated_tokens.labels("m", "0").value = 6000.0
    found = samples(merged([part_of(metrics)], retired=retired))
    assert found[("penstock_http_requests_total", "method=GET,route=/a,status=200")] == 10
    assert found[("penstock_route_seconds_count", "")] == 2
    assert found[("penstock_engine_generated_tokens_total", "engine=0,model_name=m")] == 6000
    assert ("penstock_queue_tokens", "model_name=m") not in found


def test_new_bounds_are_a_new_beginning_for_everybody() -> None:
    def counted(bound: float) -> Part:
        metrics = Metrics(GatewayConfig(slo=ObjectivesConfig(ttft=bound)))
        metrics.families.ttft.labels("m", "standard").observe(0.1)
        return part_of(metrics)

    retired = Retired()
    retired.take(counted(0.3))
    count = ("penstock_time_to_first_token_seconds_count", "class=standard,model_name=m")
    assert samples(merged([counted(0.3)], retired=retired))[count] == 2
    assert samples(merged([counted(0.4)], retired=retired))[count] == 1
    retired.take(counted(0.4))
    assert samples(merged([counted(0.4)], retired=retired))[count] == 2


def test_money_does_not_fall_by_a_hair_when_processes_die_and_come_back() -> None:
    draw = random.Random(3)

    def process(run: str) -> Part:
        metrics = Metrics()
        for number in range(200):
            metrics.families.cost.labels("m", f"t{number}").inc(draw.random() * 10 ** draw.randint(-6, 3))
            metrics.families.route_seconds.labels().observe(draw.random())
        return msgspec.structs.replace(part_of(metrics), run=run)

    parts = [process(str(number)) for number in range(4)]
    retired = Retired()
    retired.take(parts[0])
    retired.take(parts[2])
    names = ("penstock_cost_dollars_total", "penstock_route_seconds_sum")
    expected, *found = (
        {key: value for key, value in samples(page).items() if key[0] in names}
        for page in (
            merged(parts),
            merged([parts[3], parts[1], parts[2]], gone=parts[0]),
            merged([parts[3], parts[1]], retired=retired),
        )
    )
    assert len(expected) == 201
    assert all(each == expected for each in found)
