"""Reading a page of metrics in tests."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


class Samples(dict[str, list[tuple[dict[str, str], float]]]):
    """By the name of the series."""

    def of(self, series: str, /, **labels: str) -> float | None:
        """The sum of what has these labels; None: there is nothing."""
        found = [value for have, value in self.get(series, []) if labels.items() <= have.items()]
        return sum(found) if found else None


def samples(page: bytes) -> Samples:
    found = Samples()
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found
