"""A new predictor's way into use: in shadow, then on a share of requests, then on all; back if it is worse.

The *champion* is in use, the *challenger* on trial. In every stage both rate each request, so that verdicts
compare them pairwise: by log loss, and by what their choices were worth. In shadow only the champion decides,
and verdicts exist only where it dared to ask a lower tier: what the challenger would have sent there is seen
on its share. After full use the old champion goes on rating for a while, as the yardstick.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from penstock.aio.monitor.bounds import wilson

Stage = Literal["steady", "shadow", "share", "full"]
Arm = Literal["champion", "challenger"]
DAY: Final = 86_400.0  # seconds


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """Where things stand. Kept as JSON; every change makes a new one."""

    champion: str  # version
    challenger: str = ""
    stage: Stage = "steady"
    since: float = 0.0  # when the stage began

    def decider(self, request: str, share: float = 0.1) -> Arm:
        """Who decides a request: by a hash of its id, so that all processes agree."""
        if self.stage == "full":
            return "challenger"
        if self.stage != "share":
            return "champion"
        digest = hashlib.sha256(f"{self.challenger}\0{request}".encode()).digest()
        return "challenger" if int.from_bytes(digest[:8], "big") < share * 2**64 else "champion"


class Event(msgspec.Struct, frozen=True):
    """Something that has changed, for the record."""

    at: float
    what: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A verdict, and what both models had said. Gains are None where what a choice was worth is not known."""

    at: float
    arm: Arm  # who decided
    good: bool
    predicted: float  # that the answer is good: by the champion
    challenged: float  # the same, by the challenger
    gain: float | None = None
    challenger_gain: float | None = None


@dataclass(frozen=True, slots=True)
class RolloutRules:
    share: float = 0.1  # of requests, in the stage of that name
    least: int = 60  # verdicts of a stage before anything follows from them
    least_of_share: int = 20  # of them for requests that the challenger decided, in that stage
    z_worse: float = 3.0  # it is looked at often
    z_better: float = 1.0
    margin: float = 0.02  # of log loss that a challenger may surely not be worse by
    days: float = 14.0  # in one stage
    watch_days: float = 7.0  # after full use
    factor: float = 2.0  # as many answers are checked while a challenger is on trial

    def begin(self, state: Rollout, version: str, now: float) -> tuple[Rollout, list[Event]]:
        """Put a new model on trial. One that is on trial already gives way: this one has seen more."""
        events: list[Event] = []
        if state.stage == "full":
            state, events = _end(state, "full", True, "A newer model takes its turn.", now)
        elif state.stage != "steady":
            state, events = _end(state, "replaced", False, "A newer model takes its turn.", now)
        begun = Rollout(champion=state.champion, challenger=version, stage="shadow", since=now)
        return begun, [*events, Event(now, "shadow", version, f"Rates beside {state.champion}.")]

    def checks(self, state: Rollout, arm: Arm) -> float:
        """By what the share of answers that are checked is multiplied, for requests that `arm` decided.

        A challenger's few requests are checked about as often as those of all together: what it dares to send
        to a lower tier is seen nowhere else.
        """
        if state.stage == "steady":
            return 1.0
        return (
            max(self.factor, 1.0 / self.share)
            if (state.stage, arm) == ("share", "challenger")
            else self.factor
        )

    def step(self, state: Rollout, trials: Sequence[Trial], now: float) -> tuple[Rollout, list[Event]]:
        """What follows from the verdicts of this stage, those since `state.since`."""
        if state.stage == "steady":
            return state, []
        seen = [trial for trial in trials if trial.at >= state.since]
        worse = self._why_worse(state, seen)
        if worse:
            return _end(state, "rolled back", False, worse, now)
        better = self._why_better(state, seen)
        passed = now - state.since
        if state.stage == "full":
            if better or passed >= self.watch_days * DAY:
                return _end(
                    state, "kept", True, better or f"Nothing against it in {self.watch_days:g} days.", now
                )
            return state, []
        if better:
            stage: Stage = "share" if state.stage == "shadow" else "full"
            return msgspec.structs.replace(state, stage=stage, since=now), [
                Event(now, stage, state.challenger, better)
            ]
        if passed >= self.days * DAY:
            said = (
                f"Not shown to be better in {self.days:g} days of {state.stage}, with {len(seen)} verdicts."
            )
            return _end(state, "rolled back", False, said, now)
        return state, []

    def _why_worse(self, state: Rollout, trials: Sequence[Trial]) -> str | None:
        if len(trials) < self.least // 2:
            return None
        loss = _mean(trials, _loss_difference)
        if loss.mean - self.z_worse * loss.error > 0:
            return f"Its log loss is higher by {loss}."
        value = _mean(trials, _gain_difference)
        if value.n >= self.least // 2 and value.mean + self.z_worse * value.error < 0:
            return f"What its choices are worth is less by {value.negated()}."
        if state.stage == "share":
            (good, n), (champion_good, champion_n) = (
                _tally(trials, arm) for arm in ("challenger", "champion")
            )
            upper, lower = (
                wilson(good, n, self.z_worse)[1],
                wilson(champion_good, champion_n, self.z_worse)[0],
            )
            if upper < lower:
                return (
                    f"Of the answers it decided on {good} of {n} were good enough, of the champion's "
                    f"{champion_good} of {champion_n}."
                )
        return None

    def _why_better(self, state: Rollout, trials: Sequence[Trial]) -> str | None:
        if len(trials) < self.least:
            return None
        if state.stage == "share" and _tally(trials, "challenger")[1] < self.least_of_share:
            return None
        loss = _mean(trials, _loss_difference)
        value = _mean(trials, _gain_difference)
        if loss.mean <= 0 and loss.mean + self.z_better * loss.error <= self.margin and value.mean >= 0:
            return f"Over {loss.n} verdicts its log loss is lower by {loss.negated()}."
        return None


def gain(
    choice: str, tier: str, good: bool, expert: str, costs: dict[str, float], rate: float
) -> float | None:
    """What choosing a tier was worth, once the answer of `tier` has been compared with the expert's.

    Quality less cost at the going rate, costs as shares of the expert's. None for tiers that did not answer.
    """
    if choice == tier:
        return float(good) - rate * costs[tier]
    return 1.0 - rate * costs[expert] if choice == expert else None


@dataclass(frozen=True, slots=True)
class _Mean:
    mean: float
    error: float  # standard error of the mean
    n: int

    def negated(self) -> _Mean:
        return _Mean(-self.mean, self.error, self.n)

    def __str__(self) -> str:
        return f"{self.mean:.3f} (± {self.error:.3f}, {self.n} verdicts)"


def _mean(trials: Sequence[Trial], value: Callable[[Trial], float | None]) -> _Mean:
    values = [found for trial in trials if (found := value(trial)) is not None]
    n = len(values)
    if n < 2:
        return _Mean(values[0] if values else 0.0, math.inf if values else 0.0, n)
    mean = sum(values) / n
    return _Mean(mean, math.sqrt(sum((found - mean) ** 2 for found in values) / (n - 1) / n), n)


def _loss_difference(trial: Trial) -> float:
    return _loss(trial.challenged, trial.good) - _loss(trial.predicted, trial.good)


def _gain_difference(trial: Trial) -> float | None:
    if trial.gain is None or trial.challenger_gain is None:
        return None
    return trial.challenger_gain - trial.gain


def _loss(p: float, good: bool) -> float:
    p = min(0.999, max(0.001, p))
    return -math.log(p if good else 1 - p)


def _tally(trials: Sequence[Trial], arm: str) -> tuple[int, int]:
    chosen = [trial.good for trial in trials if trial.arm == arm]
    return sum(chosen), len(chosen)


def _end(state: Rollout, what: str, won: bool, reason: str, now: float) -> tuple[Rollout, list[Event]]:
    champion = state.challenger if won else state.champion
    return Rollout(champion=champion, since=now), [Event(now, what, state.challenger, reason)]
