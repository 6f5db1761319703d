"""Rules and dashboards ask for nothing that Penstock does not export, and get an answer when it does."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from penstock.config import SloConfig
from penstock.observe.alerts.rule import Recording
from penstock.observe.alerts.rules import rules
from penstock.observe.dashboards.boards import BOARDS
from tests.observe.alerts.promtool import promises
from tests.observe.pages import series
from tests.observe.queries import Selector, aggregations, joined_labels, selectors
from tests.packages import needs

PROMISES = promises({"large": SloConfig(ttft=2.0, e2e=10.0)}, tpot=0.05)
RULES = [(rule.name, rule.expr) for _, rule in rules(PROMISES)]
SHOWN = [
    (f"{board.name}: {panel.title} ({number})", query.expr)
    for board in BOARDS
    for row in board.rows
    for panel in row.panels
    for number, query in enumerate(panel.queries)
]
CHOICES = [(f"{board.name}: {name}", query) for board in BOARDS for name, query in board.choices.items()]
RECORDED = {rule.name for _, rule in rules(PROMISES) if isinstance(rule, Recording)}
SCRAPED = {"instance", "job"}  # labels that Prometheus gives every series that it fetches


def labels_of(metric: str) -> set[str] | None:
    """None: there is no such metric."""
    if metric in RECORDED:
        return {"model_name", "objective"} if "slo" in metric else {"model_name"}
    known = {"up": set(), "ALERTS": {"alertname", "alertstate", "severity"}}
    found = series(vllm_names=False).get(metric)
    labels = known.get(metric) if found is None else set(found)
    return None if labels is None else labels | SCRAPED


@pytest.mark.parametrize(("name", "expr"), [*RULES, *SHOWN, *CHOICES], ids=lambda value: str(value)[:60])
def test_a_query_names_only_metrics_and_labels_of_the_catalogue(name: str, expr: str) -> None:
    if expr.startswith("label_values("):
        metric, label = expr.removeprefix("label_values(").removesuffix(")").split(", ")
        assert label in (labels_of(metric) or ()), expr
        return
    expr = expr.replace("$", "")
    every: set[str] = set()
    for selector in selectors(expr):
        known = labels_of(selector.metric)
        assert known is not None, f"{name}: there is no metric {selector.metric}"
        assert {label for label, _, _ in selector.matchers} <= known, f"{name}: {selector}"
        every |= known
    for labels, operand in aggregations(expr):
        # What is joined by `group_left` gives values, and no labels.
        for selector in selectors(operand.partition(" group_left ")[0]):
            assert set(labels) <= (labels_of(selector.metric) or set()), (
                f"{name}: {labels} of {selector.metric}"
            )
    assert joined_labels(expr) <= every


@pytest.mark.parametrize(("name", "expr"), SHOWN, ids=lambda value: str(value)[:60])
def test_a_query_stays_within_what_the_reader_has_chosen(name: str, expr: str) -> None:
    board = next(board for board in BOARDS if name.startswith(f"{board.name}:"))
    chosen = {"model": "model_name", "tenant": "tenant", "instance": ""}
    if "instance" in board.choices:
        assert "$instance" in expr
    for choice in board.choices:
        for selector in selectors(expr.replace("$__", "").replace("$", "")):
            labels = {"model_name", "tenant"} & set(series().get(selector.metric, ()))
            if chosen[choice] in labels:
                matched = {(label, value) for label, _, value in selector.matchers}
                assert (chosen[choice], choice) in matched, f"{name}: {selector}"


def filled(expr: str) -> str:
    """As Grafana sends it."""
    for name, value in {"__rate_interval": "5m", "__range": "1h"}.items():
        expr = expr.replace(f"${name}", value)
    for name in ("model", "tenant", "instance"):
        expr = expr.replace(f"${name}", ".*")
    return expr


def examples(metric: str, wanted: Iterable[Selector]) -> Iterator[dict[str, str]]:
    """Labels of a series for every value that a query asks the metric for."""
    labels = dict.fromkeys([*(labels_of(metric) or ())], "x") | {"job": "penstock"}
    labels |= {"le": "+Inf"} if "le" in labels else {}
    yield labels
    for selector in wanted:
        asked = {
            label: value.split("|")
            for label, operator, value in selector.matchers
            if operator in ("=", "=~") and value != ".*"
        }
        for values in itertools.product(*asked.values()):
            yield labels | dict(zip(asked, values, strict=True))


def test_every_query_of_the_dashboards_is_answered_where_every_metric_is_exported(tmp_path: Path) -> None:
    """promtool parses each, and finds it something in a server's metrics: no join goes wrong."""
    expressions = [filled(expr) for _, expr in SHOWN]
    wanted: dict[str, list[Selector]] = {}
    for expr in [*expressions, *(expr for _, expr in RULES)]:
        for selector in selectors(expr):
            wanted.setdefault(selector.metric, []).append(selector)
    exported: dict[str, str] = {}
    for metric in series(vllm_names=False):
        for labels in examples(metric, wanted.get(metric, ())):
            text = ",".join(f'{key}="{value}"' for key, value in labels.items())
            counts = metric.endswith(("_total", "_bucket", "_sum", "_count"))
            exported[f"{metric}{{{text}}}"] = "0+1x120" if counts else "1x120"
    found = [{"record": f"found:{n}", "expr": f"count({expr}) > 0"} for n, expr in enumerate(expressions)]
    recorded = [rule.as_dict() for _, rule in rules(PROMISES) if isinstance(rule, Recording)]
    one = {"name": "in this order", "rules": [*recorded, *found]}  # groups have none
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [one]}), encoding="utf-8")
    tests = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "10m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in exported.items()],
                "promql_expr_test": [
                    {
                        "expr": f"found:{n} > bool 0",
                        "eval_time": "2h",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    }
                    for n in range(len(found))
                ],
            }
        ],
    }
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump(tests), encoding="utf-8")
    done = subprocess.run(
        [needs("promtool", "prometheus"), "test", "rules", str(file)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    names = [name for n, (name, _) in enumerate(SHOWN) if f'"found:{n} ' in done.stdout + done.stderr]
    assert names == []
    assert done.returncode == 0, done.stdout + done.stderr
