"""When to learn anew from verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.aio.monitor.bounds import wilson

DAY: Final = 86_400.0  # seconds


@dataclass(frozen=True, slots=True)
class RetrainRule:
    """Surely too many answers should have gone further up; or time has passed, and there is news."""

    threshold: float = 0.15  # share of checked answers where the expert's was better
    days: float = 7.0
    least: int = 100  # new verdicts, for the sake of time alone
    z: float = 1.96
    pause: float = DAY  # seconds between two attempts

    def reason(self, sampled: int, upgraded: int, last: float, now: float) -> str | None:
        """Why to learn now, as a sentence; None if there is no reason.

        `sampled` verdicts that say something have come in since `last`, the latest attempt; in `upgraded` of
        them the expert's answer was better.
        """
        if now - last < self.pause:
            return None
        lower, _ = wilson(upgraded, sampled, self.z)
        if lower > self.threshold:
            return (
                f"Of {sampled} checked answers {upgraded} should have come from a better tier: at least "
                f"{lower:.0%}, more than {self.threshold:.0%}."
            )
        if now - last >= self.days * DAY and sampled >= self.least:
            return f"There are {sampled} new verdicts, and {self.days:g} days have passed."
        return None
