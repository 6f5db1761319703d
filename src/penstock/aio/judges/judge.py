"""From two answers to a verdict: first whether both are answers at all, then the judge of their kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from penstock.aio.judges.choice import judge_choice, judge_yes_no
from penstock.aio.judges.code import judge_code
from penstock.aio.judges.document import judge_json
from penstock.aio.judges.faults import fault_of
from penstock.aio.judges.kinds import kind_of
from penstock.aio.judges.number import judge_number
from penstock.aio.judges.open import is_open
from penstock.aio.judges.prose import judge_prose
from penstock.aio.judges.value import judge_value
from penstock.aio.judges.verdict import Embed, Pair, Verdict

JUDGES: Final[dict[str, Callable[[Pair, Embed | None], Verdict]]] = {
    "json": judge_json,
    "choice": judge_choice,
    "code": judge_code,
    "value": judge_value,
    "number": judge_number,
    "yes_no": judge_yes_no,
    "prose": judge_prose,
}
_CHARACTERS: Final = 20_000  # of a text that are read, its end; answers conclude there


def judge(
    question: str,
    low: str,
    expert: str,
    embed: Embed | None = None,
    *,
    low_cut: bool = False,
    expert_cut: bool = False,
) -> Verdict:
    """Whether the low tier's answer is as good as the expert's. Never raises, whatever the texts are.

    `low_cut` and `expert_cut` say that an answer stopped at its limit of tokens.
    """
    question, low, expert = question[-_CHARACTERS:], low[-_CHARACTERS:], expert[-_CHARACTERS:]
    faults = fault_of(low, cut=low_cut), fault_of(expert, cut=expert_cut)
    if faults == (None, None):
        kind = kind_of(question, low, expert)
        verdict = JUDGES[kind](Pair(question, low, expert), embed)
        if verdict.outcome == "expert_better" and kind != "code" and is_open(question):
            return replace(verdict, score=0.5, outcome="unclear")
        return verdict
    if faults[0] == faults[1]:
        # Both refused, or both stopped at the same limit: the expert would have been no better.
        return Verdict(0.5, "unclear" if faults[0] == "cut" else "same", "faults", str(faults[0]))
    if faults[1] is None:
        return Verdict(0.01, "expert_better", "faults", str(faults[0]))
    if faults[0] is None:
        return Verdict(0.9, "low_better", "faults", str(faults[1]))
    return Verdict(0.5, "unclear", "faults", str(faults[0]))
