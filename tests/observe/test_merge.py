"""Pages of metrics of several processes, as one page."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from penstock.observe.merge import merged


def page(asked: int, seconds: list[float], *, healthy: float = 1.0, route: str = "/a") -> bytes:
    registry = CollectorRegistry()
    counter = Counter("penstock_asked", "Requests, of all kinds.", ["route"], registry=registry)
    counter.labels(route).inc(asked)
    histogram = Histogram("penstock_seconds", "Time.", buckets=(0.1, 1.0), registry=registry)
    for value in seconds:
        histogram.observe(value)
    Gauge("penstock_replica_healthy", "Whether.", ["replica"], registry=registry).labels("r 1").set(healthy)
    Gauge("penstock_queue_requests", "How many.", registry=registry).set(asked)
    return generate_latest(registry)


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
    found = samples(merged([page(3, [0.05, 5.0]), page(4, [0.5])]))
    assert found[("penstock_asked_total", "route=/a")] == 7
    assert found[("penstock_seconds_bucket", "le=0.1")] == 1
    assert found[("penstock_seconds_bucket", "le=1.0")] == 2
    assert found[("penstock_seconds_bucket", "le=+Inf")] == found[("penstock_seconds_count", "")] == 3
    assert found[("penstock_seconds_sum", "")] == 5.55
    assert found[("penstock_queue_requests", "")] == 7


def test_what_all_say_of_the_same_thing_is_not_added_up() -> None:
    for pair in ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0)):
        found = samples(merged([page(1, [], healthy=state) for state in pair]))
        assert found[("penstock_replica_healthy", "replica=r 1")] == 1
    assert (
        samples(merged([page(1, [], healthy=0), page(1, [], healthy=0)]))[
            ("penstock_replica_healthy", "replica=r 1")
        ]
        == 0
    )


def test_what_only_one_has_is_there_and_each_family_is_described_once() -> None:
    text = merged([page(1, []), page(2, [], route="/b"), b""])
    assert samples(text)[("penstock_asked_total", "route=/b")] == 2
    assert text.count(b"# TYPE penstock_asked_total counter") == 1
    assert text.endswith(b"\n")
    assert b"_created" not in text, "a sum did not begin at any time"


def test_one_page_means_the_same_as_it_did() -> None:
    alone = page(2, [0.2, 0.3])
    kept = {key: value for key, value in samples(alone).items() if not key[0].endswith("_created")}
    assert samples(merged([alone])) == kept
