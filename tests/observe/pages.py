"""Reading a page of metrics in tests."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from penstock.observe.catalogue import specs


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


def series(*, vllm_names: bool = True) -> dict[str, tuple[str, ...]]:
    """Everything that the catalogue lets a query name, with its labels."""
    found: dict[str, tuple[str, ...]] = {}
    for spec in specs().values():
        for name in (spec.name, spec.also) if vllm_names and spec.also else (spec.name,):
            if spec.kind == "histogram":
                found[f"{name}_bucket"] = (*spec.labels, "le")
                found[f"{name}_sum"] = found[f"{name}_count"] = spec.labels
            else:
                found[f"{name}_total" if spec.kind == "counter" else name] = spec.labels
    return found
