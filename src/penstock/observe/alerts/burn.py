"""How fast the budgets of the promises are used up, over several windows at once.

A request is bad when it was slow, failed or was shed, of all that were accepted or shed; the server counts
good and bad ones itself, by the bound of each model, so that these rules need the targets only.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.observe.alerts.rule import Alert, Promises, Recording, Rule
from penstock.observe.alerts.thresholds import BURN_RATES, LEAST_BAD, BurnRate
from penstock.observe.promql import increase, rate, span

_COUNTER = "penstock_slo_requests_total"
_ADVICE = {
    "ttft": "Which cause leads in the slow-request log? Shed and failed requests count as late, too.",
    "errors": "Failed or shed? Shed requests ask for capacity, failed ones for a look at replicas and log.",
    "tpot": "Larger batches, long prompts between decodes, a throttled GPU, or others on the device.",
}


def rules(promises: Promises) -> Iterator[Rule]:
    for window in sorted({window for burn in BURN_RATES for window in (burn.long, burn.short)}):
        every, bad = (
            rate(_COUNTER, span(window), "model_name, objective", where) for where in ("", 'verdict="bad"')
        )
        yield Recording(name=ratio(window), expr=f"{bad}\n/ {every}")
    targets = {"ttft": promises.slo.ttft_target, "errors": promises.slo.errors_target}
    if promises.has_tpot:
        targets["tpot"] = promises.slo.ttft_target
    for objective, target in targets.items():
        for burn in BURN_RATES:
            yield _alert(objective, target, burn)


def ratio(window: int) -> str:
    """The recorded share of bad requests, by model and objective."""
    return f"penstock:slo_bad:ratio_rate{span(window)}"


def _alert(objective: str, target: float, burn: BurnRate) -> Rule:
    where = f'{{objective="{objective}"}}'
    bound = f"{burn.bound(target):.6g}"
    bad = increase(
        _COUNTER, span(burn.long), "model_name, objective", f'objective="{objective}",verdict="bad"'
    )
    factor = burn.bound(target) / (1 - target)
    return Alert(
        name=f"Penstock{objective.capitalize()}Burn{span(burn.long)}",
        severity=burn.severity,
        hold=0,  # the windows are what keeps it from fluttering
        expr=f"{ratio(burn.long)}{where} > {bound}\nand {ratio(burn.short)}{where} > {bound}\n"
        f"and {bad} >= {LEAST_BAD}",
        summary="{{ $value | humanizePercentage }} of the requests for {{ $labels.model_name }} miss the "
        f"objective {objective}: at least {factor:.3g} times as many as {target:.5g} allows, "
        f"for {span(burn.long)}.",
        action=_ADVICE[objective],
        section="burn-rates",
    )
