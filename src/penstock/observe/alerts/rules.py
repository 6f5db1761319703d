"""All rules as Prometheus reads them. A group of alerts is a file of its own and a line here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from penstock.observe.alerts import availability, burn, cost, drift, gpu, latency, load
from penstock.observe.alerts.rule import Alert, Group, Rule
from penstock.observe.objectives import Promises

GROUPS: Final[dict[str, Group]] = {
    "availability": availability.rules,
    "burn": burn.rules,
    "latency": latency.rules,
    "load": load.rules,
    "gpu": gpu.rules,
    "cost": cost.rules,
    "drift": drift.rules,
}
_HEAD: Final = (
    "# Made by `penstock observe rules` from the objectives of penstock.yaml: make it anew with them.\n"
)


def rules(promises: Promises) -> Iterator[tuple[str, Rule]]:
    """Each with its group."""
    for name, group in GROUPS.items():
        for rule in group(promises):
            yield name, rule


def alerts(promises: Promises) -> list[Alert]:
    return [rule for _, rule in rules(promises) if isinstance(rule, Alert)]


def document(promises: Promises) -> dict[str, Any]:
    """A rule file, as a value."""
    return {
        "groups": [
            {"name": f"penstock-{name}", "rules": [rule.as_dict() for rule in group(promises)]}
            for name, group in GROUPS.items()
        ]
    }


class _Dumper(yaml.SafeDumper):
    """Expressions of several lines stay so."""


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _string)


def render(promises: Promises) -> str:
    return _HEAD + yaml.dump(
        document(promises), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000
    )
