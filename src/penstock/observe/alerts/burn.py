"""How fast the budgets of the promises are used up, over several windows at once.

A request is bad when it was slow, failed or was shed, of all that were accepted or shed; the server counts
good and bad ones itself, by the bound of each model, so that these rules need the targets only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.observe.alerts.rule import Alert, Recording, Rule
from penstock.observe.alerts.thresholds import BURN_RATES, LEAST_BAD, BurnRate
from penstock.observe.objectives import Promises
from penstock.observe.promql import increase, rate, span

_COUNTER = "penstock_slo_requests_total"
_LASTING: Final = {3600: "the last hour", 6 * 3600: "the last 6 hours", 3 * 86400: "the last 3 days"}
_ADVICE = {
    "ttft": "Which cause leads in the slow-request log? Shed and failed requests count as late, too.",
    "errors": "Failed or shed? Shed requests ask for capacity, failed ones for a look at replicas and log.",
    "tpot": "Larger batches, long prompts between decodes, a throttled GPU, or others on the device.",
    "e2e": "Long answers, a long queue, slow tokens: the slow-request log names the cause of each.",
}
# How a bad request is called, of each objective.
WRONG: Final = {
    "ttft": "got their first token too late, or not at all,",
    "errors": "failed or were refused",
    "tpot": "got their tokens too slowly",
    "e2e": "got their answer too late, or not at all,",
}


def rules(promises: Promises) -> Iterator[Rule]:
    for window in sorted({window for burn in BURN_RATES for window in (burn.long, burn.short)}):
        every, bad = (
            rate(_COUNTER, span(window), "model_name, objective", where) for where in ("", 'verdict="bad"')
        )
        yield Recording(name=ratio(window), expr=f"{bad}\n/ {every}")
    for objective in promises.objectives():
        for burn in BURN_RATES:
            yield _alert(objective, promises.target(objective), burn)


def ratio(window: int) -> str:
    """The recorded share of bad requests, by model and objective."""
    return f"penstock:slo_bad:ratio_rate{span(window)}"


def summary(share: str, model: str, objective: str, target: float, seconds: int) -> str:
    """What an alert says, here and in the console."""
    allowed = f"{100 * (1 - target):.4g}%"
    return f"{share} of the requests for {model} {WRONG[objective]} in {_LASTING[seconds]}; {allowed} may."


def _alert(objective: str, target: float, burn: BurnRate) -> Rule:
    where = f'{{objective="{objective}"}}'
    bound = f"{burn.bound(target):.6g}"
    bad = increase(
        _COUNTER, span(burn.long), "model_name, objective", f'objective="{objective}",verdict="bad"'
    )
    return Alert(
        name=f"Penstock{objective.capitalize()}Burn{span(burn.long)}",
        severity=burn.severity,
        hold=0,  # the windows are what keeps it from fluttering
        expr=f"{ratio(burn.long)}{where} > {bound}\nand {ratio(burn.short)}{where} > {bound}\n"
        f"and {bad} >= {LEAST_BAD}",
        summary=summary(
            "{{ $value | humanizePercentage }}", "{{ $labels.model_name }}", objective, target, burn.long
        ),
        action=_ADVICE[objective],
        section="burn-rates",
    )
