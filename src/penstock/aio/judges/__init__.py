"""Whether a low tier's answer is as good as the expert's: one judge for each kind of answer.

Pure: texts in, a verdict out; an embedding is a function that is given, a rubric is asked by somebody else.
Must not know tiers, tenants, money or where verdicts go.
"""

from penstock.aio.judges.judge import JUDGES, judge
from penstock.aio.judges.kinds import kind_of
from penstock.aio.judges.rubric import Rubric, read_rubric, rubric_prompt
from penstock.aio.judges.verdict import Embed, Outcome, Verdict

__all__ = [
    "JUDGES",
    "Embed",
    "Outcome",
    "Rubric",
    "Verdict",
    "judge",
    "kind_of",
    "read_rubric",
    "rubric_prompt",
]
