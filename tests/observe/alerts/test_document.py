"""docs/alerts.md says of every alert when it fires, and has the section that its runbook names."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.observe.alerts.rule import Alert
from penstock.observe.alerts.rules import alerts
from penstock.observe.promql import span
from tests.observe.alerts.promtool import EVERYTHING
from tests.test_docs import anchors

ROOT = Path(__file__).parents[3]
ROWS = [line.split("|") for line in (ROOT / "docs" / "alerts.md").read_text().splitlines() if "| [" in line]
ALERTS = alerts(EVERYTHING)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_is_in_the_table_as_it_is(alert: Alert) -> None:
    (row,) = (row for row in ROWS if f"[{alert.name}]" in row[1])
    _, _, severity, _, hold, _ = (cell.strip() for cell in row)
    assert severity == alert.severity
    assert hold == (span(alert.hold) if alert.hold else "at once")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_runbook_leads_to_a_section(alert: Alert) -> None:
    file, _, section = alert.as_dict()["annotations"]["runbook"].partition("#")
    assert section in anchors(ROOT / file)


def test_the_table_names_no_alert_that_is_not_there() -> None:
    named = {part.split("]")[0] for row in ROWS for part in row[1].split("[")[1:]}
    assert named == {alert.name for alert in ALERTS}
