"""Numbers: do both answers come to the same one?"""

from __future__ import annotations

from dataclasses import replace

from penstock.aio.judges.arithmetic import wrong_sums
from penstock.aio.judges.final import FinalNumber, final_number
from penstock.aio.judges.numbers import Number, same
from penstock.aio.judges.verdict import Embed, Pair, Verdict

NAME = "final number"


def judge_number(pair: Pair, embed: Embed | None) -> Verdict:
    low, expert = final_number(pair.question, pair.low), final_number(pair.question, pair.expert)
    if low is None:
        return Verdict(0.02, "expert_better", NAME, "number")
    if expert is None:
        return Verdict(0.9, "low_better", NAME, "number")
    if same(low.best, expert.best):
        marked = low.explicit or expert.explicit
        return Verdict(0.97 if marked else 0.93, "same", NAME, "number")
    if same(_unsigned(low.best), _unsigned(expert.best)):
        return Verdict(0.35, "unclear", NAME, "number")
    if _might_mean(low, expert):
        return Verdict(0.15, "unclear" if not low.explicit else "expert_better", NAME, "number")
    # They differ: whose working does not come out is likelier to be wrong.
    if wrong_sums(pair.low):
        return Verdict(0.03, "expert_better", NAME, "number")
    return Verdict(0.10 if wrong_sums(pair.expert) else 0.07, "expert_better", NAME, "number")


def _unsigned(number: Number) -> Number:
    return replace(number, value=abs(number.value))


def _might_mean(low: FinalNumber, expert: FinalNumber) -> bool:
    """Whether one's result stands in the other's conclusion, which names several numbers."""
    return any(same(low.best, other) for other in expert.others) or any(
        same(expert.best, other) for other in low.others
    )
