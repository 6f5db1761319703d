"""Pages of metrics of several processes, as one page."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from penstock.observe.merge import merged
from penstock.observe.metrics import Metrics


def page(asked: int, seconds: list[float], *, healthy: float = 1.0, route: str = "/a") -> bytes:
    metrics = Metrics()
    families = metrics.families
    families.http.labels(route, "GET", "200").inc(asked)
    for value in seconds:
        families.route_seconds.labels().observe(value)
    families.healthy.labels("m", "r 1").set(healthy)
    families.waiting_tokens.labels("m").set(asked)
    return metrics.render()


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
    for pair in ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0)):
        found = samples(merged([page(1, [], healthy=state) for state in pair]))
        assert found[("penstock_replica_healthy", "model_name=m,replica=r 1")] == 1
    assert (
        samples(merged([page(1, [], healthy=0), page(1, [], healthy=0)]))[
            ("penstock_replica_healthy", "model_name=m,replica=r 1")
        ]
        == 0
    )


def test_what_only_one_has_is_there_and_each_family_is_described_once() -> None:
    text = merged([page(1, []), page(2, [], route="/b"), b""])
    assert samples(text)[("penstock_http_requests_total", "method=GET,route=/b,status=200")] == 2
    assert text.count(b"# TYPE penstock_http_requests_total counter") == 1
    assert text.endswith(b"\n")


def test_one_page_means_the_same_as_it_did() -> None:
    alone = page(2, [0.2, 0.3])
    assert samples(merged([alone])) == samples(alone)
