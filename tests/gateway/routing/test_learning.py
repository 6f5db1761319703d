"""What follows from verdicts in the store: heads learned anew, tried beside the old, taken back if bad."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from penstock.aio.heads import Head
from penstock.aio.monitor import Rollout
from penstock.aio.predictor import CalibrationSample, Predictor, Rating
from penstock.aio.query import Query
from penstock.aio.retrain import pack_heads
from penstock.config import BackendConfig, GatewayConfig, ModelConfig, PriceConfig, RoutingConfig, TierConfig
from penstock.errors import ConfigError
from penstock.gateway.routing.learning import LEARNED, Learning, as_good
from penstock.gateway.store import Database
from penstock.gateway.store.learning import LearningTable, StoredPredictor
from penstock.gateway.store.verdicts import VerdictRow, VerdictTable

DAY = 86_400
START = 1_700_000_000 // DAY * DAY
REFERENCES = ("small", "large")


def head(slope: float, intercept: float) -> Head:
    return Head(np.array([slope], np.float32), intercept, np.eye(2, dtype=np.float32))


@dataclass(frozen=True)
class OneNumber:
    """A predictor whose vector is how long the question is, in tens of characters."""

    heads: Mapping[str, Head]
    version: str = "base"
    name: str = "test"
    quick: bool = True
    references: tuple[str, ...] = REFERENCES
    sample: CalibrationSample = field(
        default_factory=lambda: CalibrationSample(REFERENCES, np.ones((1, 2), "f4"), np.ones((1, 2), "f4"))
    )

    def rate(self, query: Query, references: Sequence[str]) -> Rating:
        vector = np.array([len(query.ask) / 10], np.float32)
        scores = [
            float(self.heads[name].coefficients @ vector) + self.heads[name].intercept for name in references
        ]
        quality = tuple(float(1 / (1 + np.exp(-score))) for score in scores)
        return Rating(quality, (0.0,) * len(quality), "general", vector)

    def refitted(self, heads: Mapping[str, Head], version: str) -> Predictor:
        return replace(self, heads=dict(heads), version=version)


BASE = OneNumber({"small": head(0.0, 3.0), "large": head(0.0, 3.0)})


def ladder(**low: str) -> GatewayConfig:
    models = tuple(
        ModelConfig(name=name, backends=(BackendConfig(name=name, kind="openai_compatible", url="http://a"),))
        for name in REFERENCES
    )
    cheap, dear = PriceConfig(output=1.0), PriceConfig(output=10.0)
    tiers = (
        TierConfig(name="low", model="small", price=cheap, **low),
        TierConfig(name="top", model="large", price=dear),
    )
    return GatewayConfig(models=models, tiers=tiers)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path)


@pytest.fixture
def learning(tmp_path: Path) -> Learning:
    made = Learning(tmp_path, leads=True, load=lambda _: BASE)
    made.configure(RoutingConfig(predictor="test"), {"low": "model"})
    made.learn_at(START)
    return made


def verdict(at: float, length: float, *, good: bool, region: str = "general", **fields: object) -> VerdictRow:
    row = VerdictRow(
        at=int(at),
        tenant="acme",
        request="r",
        tier="low",
        model="model",
        expert="top",
        reference="small",
        region=region,
        kind="number",
        judge="number",
        outcome="same" if good else "expert_better",
        score=1.0,
        predicted=0.95,
        expert_quality=0.95,
        space="base",
        vector=np.array([length], "<f4").tobytes(),
    )
    return replace(row, **fields)  # type: ignore[arg-type]


def fill(database: Database, at: float, count: int = 240, **fields: object) -> None:
    """Long questions are answered badly, short ones well: something to learn."""
    table, draw = VerdictTable(database), np.random.default_rng(1)
    for number in range(count):
        length = float(draw.uniform(0, 4))
        good = bool(draw.random() < 1 / (1 + np.exp(3 * (length - 2))))
        table.add(verdict(at + number, length, good=good, region=f"r{number % 20}", **fields))


def state(database: Database) -> Rollout:
    _, found = LearningTable(database).rollout()
    assert found is not None
    return found


def test_too_many_answers_that_should_have_gone_up_make_it_learn(
    learning: Learning, database: Database
) -> None:
    fill(database, START + 2 * DAY)
    learning.learn_at(START + 3 * DAY)
    [event] = LearningTable(database).events(1, LEARNED)
    assert "should have come from a better tier" in event.reason
    assert state(database).stage == "shadow"
    stored = LearningTable(database).predictor(state(database).challenger)
    assert stored is not None
    assert stored.space == "base"


async def test_what_was_learned_knows_what_the_old_one_did_not(
    learning: Learning, database: Database
) -> None:
    fill(database, START + 2 * DAY)
    learning.learn_at(START + 3 * DAY)
    await learning.refresh()
    challenger = learning.raters.challenger
    assert challenger is not None
    short, long = (challenger.rate(Query("x" * n), REFERENCES).quality[0] for n in (3, 38))
    assert short > 0.7
    assert long < 0.3
    # In shadow it decides nothing.
    assert all(learning.predictor(f"request {n}") is learning.raters.champion for n in range(50))


async def test_a_bad_one_is_rolled_back_and_a_good_one_taken_into_use(
    learning: Learning, database: Database
) -> None:
    table = LearningTable(database)
    for version, challenged in (("bad", 0.05), ("good", 0.97)):
        table.save(StoredPredictor(version, START, "base", pack_heads({"small": head(0.0, 1.0)}), "test"))
        number, current = table.rollout()
        assert current is not None
        now = START + (10 if version == "bad" else 40) * DAY
        table.set_rollout(number, Rollout(champion="base", challenger=version, stage="shadow", since=now), [])
        for step in range(3):  # shadow, share, full
            for n in range(80):
                arm = "challenger" if step and n % 3 == 0 else "champion"
                row = verdict(now + n, 1.0, good=True, predicted=0.8, challenged=challenged, arm=arm)
                VerdictTable(database).add(row)
            now += DAY
            learning.learn_at(now)
            if state(database).stage == "steady":
                break
        await learning.refresh()
        assert learning.raters.champion.version == ("base" if version == "bad" else "good")
        assert learning.raters.challenger is None
    kinds = [event.what for event in table.events()]
    assert "rolled back" in kinds
    assert kinds.index("kept") < kinds.index("rolled back")


async def test_what_a_challenger_decides_on_trial_is_checked_more_often(
    learning: Learning, database: Database
) -> None:
    table = LearningTable(database)
    table.save(StoredPredictor("new", START, "base", pack_heads({"small": head(0.0, 1.0)}), "test"))
    number, _ = table.rollout()
    assert learning.checks("base") == 1.0
    table.set_rollout(number, Rollout(champion="base", challenger="new", stage="share", since=START), [])
    await learning.refresh()
    assert learning.checks("new") > learning.checks("base") > 1.0


async def test_promotions_are_the_same_in_every_process_and_after_a_restart(
    learning: Learning, database: Database, tmp_path: Path
) -> None:
    for n in range(40):
        VerdictTable(database).add(verdict(START + n, 1.0, good=False, region="maths"))
        VerdictTable(database).add(verdict(START + n, 1.0, good=True, region="law"))
    await learning.refresh()
    assert learning.closed("acme", "low", "maths")
    assert not learning.closed("acme", "low", "law")
    assert not learning.closed("zoo", "low", "maths")
    assert learning.blended("acme", "low", "maths", 0.5, 0.9) < 0.5
    assert learning.blended("zoo", "low", "maths", 0.5, 0.9) == 0.5
    other = Learning(tmp_path, leads=False, load=lambda _: BASE)
    other.configure(RoutingConfig(predictor="test"), {"low": "model"})
    assert other.promoted() == learning.promoted()
    assert [event.what for event in LearningTable(database).events()].count("promoted") == 1


def test_verdicts_on_another_model_say_nothing_about_the_one_that_took_its_place(
    tmp_path: Path, database: Database
) -> None:
    for n in range(40):
        VerdictTable(database).add(verdict(START + n, 1.0, good=False))
    learning = Learning(tmp_path, leads=True, load=lambda _: BASE)
    config = RoutingConfig(predictor="test")
    learning.configure(config, {"low": "model"})
    assert learning.closed("acme", "low", "general")  # and so it is kept
    VerdictTable(database).prune(START + 100)
    learning.configure(config, {"low": "a new model"})
    assert not learning.closed("acme", "low", "general")
    learning.configure(config, {"low": "model"})
    assert learning.closed("acme", "low", "general")


async def test_news_of_a_configuration_that_was_replaced_change_nothing(
    tmp_path: Path, database: Database
) -> None:
    """Another predictor is configured while a thread reads who rates, and what verdicts say."""
    begun, go_on = threading.Event(), threading.Event()

    @dataclass(frozen=True)
    class Held(OneNumber):
        def refitted(self, heads: Mapping[str, Head], version: str) -> Predictor:
            begun.set()
            assert go_on.wait(10)
            return super().refitted(heads, version)

    old = Held(BASE.heads)
    load = {"old": old, "new": replace(BASE, version="new")}
    learning = Learning(tmp_path, leads=True, load=lambda which: load[which])
    learning.configure(RoutingConfig(predictor="old"), {"low": "model"})
    table = LearningTable(database)
    table.save(StoredPredictor("learned", START, "base", pack_heads({"small": head(0.0, 1.0)}), "test"))
    table.set_rollout(0, Rollout(champion="learned", since=START), [])
    for n in range(40):
        VerdictTable(database).add(verdict(START + n, 1.0, good=False))
    reading = asyncio.create_task(learning.refresh())
    await asyncio.to_thread(begun.wait, 10)
    learning.configure(RoutingConfig(predictor="new"), {"low": "another"})
    go_on.set()
    await reading
    assert learning.raters.champion.version == "new"
    assert not learning.closed("acme", "low", "general")
    await learning.refresh()
    assert learning.raters.champion.version == "new"


async def test_threads_take_turns_with_the_store(learning: Learning) -> None:
    """Verdicts are added while others are read and a predictor is learned."""
    rows = [verdict(START + n, 1.0, good=True) for n in range(20)]
    learned = [asyncio.to_thread(learning.learn_at, START + n) for n in range(10)]
    await asyncio.gather(*(learning.add(row) for row in rows), *learned, learning.refresh())
    assert learning.blended("acme", "low", "general", 0.5, 0.9) != 0.5


def test_a_file_with_another_predictor_is_read_when_the_configuration_is(tmp_path: Path) -> None:
    files = iter([BASE, replace(BASE, version="trained again")])
    learning = Learning(tmp_path, leads=True, load=lambda _: next(files))
    config = ladder()
    for version in ("base", "trained again"):
        learning.prepare(config)
        learning.configure(config.routing, {"low": "small", "top": "large"})
        assert learning.raters.champion.version == version
        assert learning.space == version


def test_a_ladder_that_cannot_be_weighed_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    learning = Learning(tmp_path, leads=True, load=lambda _: BASE)
    learning.prepare(ladder())
    learning.configure(ladder().routing, {"low": "small", "top": "large"})
    with pytest.raises(ConfigError, match="nonsense"):
        learning.prepare(ladder(like="nonsense"))
    assert learning.raters.champion is BASE


async def test_history_in_a_region_corrects_what_is_predicted_there(
    learning: Learning, database: Database
) -> None:
    for n in range(60):
        VerdictTable(database).add(verdict(START + n, 1.0, good=n % 10 != 0, region="law", predicted=0.6))
    await learning.refresh()
    assert learning.blended("acme", "low", "law", 0.5, 0.9) > 0.6
    assert learning.blended("acme", "low", "maths", 0.5, 0.9) == 0.5


def test_as_good_as_the_expert_is_what_is_not_lost_against_it() -> None:
    assert as_good(0.9, 0.9) == 1.0
    assert as_good(0.95, 0.9) == 1.0
    assert as_good(0.5, 0.9) == pytest.approx(0.6)
