"""Everything that is said about one file: the routers asked for, beside the baselines, on both splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.aio.evaluate.baselines import BASELINES, Rater
from penstock.aio.evaluate.cross import PARTS, Rate, fits
from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.folds import Ints, by_group, by_question
from penstock.aio.evaluate.intervals import Figure
from penstock.aio.evaluate.monitor import monitor_auc
from penstock.aio.evaluate.recipe import Recipe
from penstock.aio.evaluate.shipped import Shipped, ShippedFigures, judge_shipped
from penstock.aio.evaluate.split import Judged, at_random, judge
from penstock.errors import ConfigError

Step = Callable[[str], None]  # told what was done, after every fit
LEAST_ROWS = 20  # fewer cannot be split and say anything


@dataclass(frozen=True, slots=True)
class Plan:
    """How a file is judged."""

    folds: int = 5
    repeats: int = 1
    seed: int = 0
    target: float = 0.95

    def __post_init__(self) -> None:
        if not 2 <= self.folds <= 20:
            raise ConfigError(f"--folds must be from 2 to 20, got {self.folds}.")
        if not 1 <= self.repeats <= 50:
            raise ConfigError(f"--repeats must be from 1 to 50, got {self.repeats}.")
        if not 0.0 < self.target <= 1.0:
            raise ConfigError(f"--target must be above 0 and at most 1, got {self.target:g}.")


@dataclass(frozen=True, slots=True)
class Report:
    """Figures by router, and by split: `seen` (random folds), `unseen` (whole subjects left out)."""

    data: Dataset  # as judged: the ladder's models, rows with all outcomes
    plan: Plan
    seen: dict[str, Judged]
    unseen: dict[str, Judged] | None
    shipped: ShippedFigures | None
    monitor: Figure | None
    warnings: tuple[str, ...]


def checked(data: Dataset, folds: int) -> tuple[Dataset, tuple[str, ...]]:
    """The ladder of a file, or an error that says why it cannot be judged; and what is odd about it."""
    ladder = data.ladder()
    questions = len(set(ladder.keys))
    if questions < max(LEAST_ROWS, 2 * folds):
        raise ConfigError(
            f"{data.name} has {questions} different questions with an outcome for each of "
            f"{', '.join(ladder.models)}; {folds} folds need at least {max(LEAST_ROWS, 2 * folds)}."
        )
    for column, model in enumerate(ladder.models):
        values = ladder.ok[:, column]
        if values.min() == values.max():
            raise ConfigError(
                f"{model} has the outcome {values[0]:g} on all {len(ladder)} rows of {data.name}; one class "
                "teaches nothing. Leave its column out, or add rows where it did otherwise."
            )
    return ladder, (*data.warnings, *_odd(ladder))


def _odd(ladder: Dataset) -> list[str]:
    """Prices that contradict quality."""
    means = ladder.ok.mean(axis=0)
    found = []
    for column in range(1, len(ladder.models)):
        best = int(means[:column].argmax())
        if means[column] <= means[best]:
            found.append(
                f"{ladder.models[column]} costs {ladder.cost[column]:g} and is no better than "
                f"{ladder.models[best]} at {ladder.cost[best]:g} "
                f"({means[column]:.3f} against {means[best]:.3f}): check the prices."
            )
    return found


def evaluate(
    data: Dataset,
    recipes: Mapping[str, Recipe],
    plan: Plan,
    *,
    also: Sequence[Dataset] = (),
    shipped: Shipped | None = None,
    classifier: float = 0.0,
    step: Step = lambda what: None,
) -> Report:
    """Judge recipes and baselines on one file; `classifier` is what a decision takes, in seconds."""
    ladder, warnings = checked(data, plan.folds)
    seeds = range(plan.seed, plan.seed + plan.repeats)
    seen = [by_question(ladder, plan.folds, seed) for seed in seeds]
    groups = [fold for seed in seeds if (fold := by_group(ladder, plan.folds, seed)) is not None]

    def on(folds: Sequence[Ints], split: str) -> dict[str, Judged]:
        judged: dict[str, Judged] = {}
        dealt = by_question if split == "seen" else by_group
        raters: dict[str, Rate] = {name: _rate(recipe, also, split) for name, recipe in recipes.items()}
        raters |= {name: _plain(rater) for name, rater in BASELINES.items()}
        for name, rate in raters.items():
            judged[name] = judge(
                ladder,
                folds,
                rate,
                lambda training, dealt=dealt: dealt(training, PARTS, plan.seed),  # type: ignore[misc]
                target=plan.target,
                classifier=classifier if name in recipes else 0.0,
                step=lambda name=name: step(f"{ladder.name}: {name}, subjects {split}"),  # type: ignore[misc]
            )
        judged["random"] = at_random(ladder, folds, target=plan.target)
        return judged

    return Report(
        data=ladder,
        plan=plan,
        seen=on(seen, "seen"),
        unseen=on(groups, "unseen") if groups else None,
        shipped=None
        if shipped is None
        else judge_shipped(shipped, ladder, plan.target, plan.folds, plan.seed),
        monitor=monitor_auc(ladder, plan.folds, plan.seed),
        warnings=warnings,
    )


def steps(data: Dataset, recipes: int, plan: Plan) -> int:
    """How often `step` will be called, about."""
    splits = 2 if data.groups is not None and len(set(data.groups)) > 1 else 1
    return splits * plan.repeats * (recipes + len(BASELINES)) * fits(plan.folds)


def _rate(recipe: Recipe, also: Sequence[Dataset], split: str) -> Rate:
    def rate(
        train: Dataset, test: Dataset, hidden: frozenset[str]
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        fitted = recipe.fit(train, [_apart(table.without(hidden), test, split) for table in also])
        quality = np.asarray(fitted.predict(test.queries), dtype=np.float64)
        if quality.shape != (len(test), len(train.models)) or not np.isfinite(quality).all():
            raise ValueError(f"the recipe {recipe.name} gave {quality.shape} for {len(test)} queries")
        return np.clip(quality, 0.0, 1.0)

    return rate


def _plain(rater: Rater) -> Rate:
    return lambda train, test, hidden: rater(train, test)


def _apart(table: Dataset, test: Dataset, split: str) -> Dataset:
    """What may be learnt from another table: where subjects are to be unseen, none of those judged."""
    if split == "seen" or table.groups is None or test.groups is None:
        return table
    hidden = set(test.groups)
    return table.rows([row for row, group in enumerate(table.groups) if group not in hidden])
