"""Alert cases as unit tests of Debian's promtool: one run for all of them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.config import GatewayConfig, ModelConfig, ObjectivesConfig, SloConfig
from penstock.observe.alerts.rules import document
from penstock.observe.objectives import Promises
from tests.observe.alerts.cases import Case
from tests.packages import needs


def promises(own: Mapping[str, SloConfig] | None = None, **slo: float) -> Promises:
    """What is promised for all models, and for those that have promises of their own."""
    models = tuple(ModelConfig(name=name, slo=each) for name, each in (own or {}).items())
    return Promises(GatewayConfig(models=models, slo=ObjectivesConfig(**slo)))


# With every objective that there can be.
EVERYTHING = promises({"m": SloConfig(e2e=10.0)}, tpot=0.05)


def unit_tests(cases: Iterable[Case], promises: Promises, folder: Path) -> list[Path]:
    """Files that `promtool test rules` takes, in `folder`.

    One for each group of rules and step between samples: a test evaluates all rules of its file at all steps.
    """
    folder.mkdir(exist_ok=True)
    found: dict[str, tuple[str, str]] = {}  # alert: its severity and the file with its group
    for group in document(promises)["groups"]:
        file = folder / f"{group['name']}.yml"
        file.write_text(yaml.safe_dump({"groups": [group]}), encoding="utf-8")
        for rule in group["rules"]:
            if "alert" in rule:
                found[rule["alert"]] = (rule["labels"]["severity"], file.name)
    files: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for case in cases:
        severity, group = found[case.alert]
        files.setdefault((group, case.step), []).extend(_tests(case, severity))
    paths = []
    for (group, step), tests in files.items():
        content = {"rule_files": [group], "evaluation_interval": f"{step}m", "tests": tests}
        paths.append(folder / f"every-{step}m-{group}")
        paths[-1].write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return paths


def _tests(case: Case, severity: str) -> Iterable[dict[str, Any]]:
    labels = {"alertname": case.alert, "alertstate": "firing", "severity": severity, **case.labels}
    fired = "ALERTS{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
    for name, series, expected in (
        (f"{case.alert} fires", case.fires, [{"labels": fired, "value": 1}]),
        (f"{case.alert} is silent", case.silent, []),
    ):
        # promtool says no more of a failure than the query: a matcher that is always true carries the name.
        query = f'ALERTS{{alertname="{case.alert}",alertstate="firing",test!="{name}"}}'
        yield {
            "interval": f"{case.step}m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [{"expr": query, "eval_time": f"{case.at}m", "exp_samples": expected}],
        }


def failures(files: Iterable[Path]) -> dict[str, str]:
    """What promtool found wrong, by the name of the unit test."""
    done = subprocess.run(
        [needs("promtool", "prometheus"), "test", "rules", *map(str, files)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    text = done.stdout + done.stderr
    found = dict(re.findall(r'(?ms)test!=\\"(.+?)\\"[^\n]*\n(.*?)(?=^\s*expr: |^\S|\Z)', text))
    assert bool(found) == (done.returncode != 0), text
    return found
