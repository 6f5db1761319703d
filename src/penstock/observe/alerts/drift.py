"""Replicas of one model that are not the same model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.observe.alerts import thresholds
from penstock.observe.alerts.rule import Rule, alert
from penstock.observe.objectives import Promises

_VERSION: Final = "revision, weights_sha256, template_sha256, quantization"


def rules(promises: Promises) -> Iterator[Rule]:
    yield alert(
        thresholds.DRIFT,
        f"count by (model) (count by (model, {_VERSION}) (penstock_model_info)) > {thresholds.DRIFT.bound:g}",
        "{{ $labels.model }} is served in {{ $value }} versions at once.",
        "penstock_model_info says which instance has which weights, template and quantization. "
        "A deploy that did not finish, or a repository that moved on.",
    )
