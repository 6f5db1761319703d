"""What is known of the tiers' quality: who predicts it, what verdicts say of it, what was learned of that."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.aio.monitor import Change, Event, QualityBook, RetrainRule, Rollout, RolloutRules
from penstock.aio.monitor.rollout import Arm
from penstock.aio.predictor import Predictor
from penstock.aio.retrain import pack_heads, retrain, unpack_heads
from penstock.config import RoutingConfig
from penstock.errors import PenstockError
from penstock.gateway.routing.ladder import load as load_predictor
from penstock.gateway.store import Database
from penstock.gateway.store.learning import LearningTable, StoredPredictor
from penstock.gateway.store.verdicts import Seen, VerdictRow, VerdictTable

logger = logging.getLogger("penstock.routing")

KEPT_SECONDS: Final = 90 * 86_400.0  # of verdicts
LEARNED: Final = "learned"
NOT_LEARNED: Final = "not learned"


@dataclass(frozen=True, slots=True)
class Raters:
    """The predictor in use, and one on trial beside it."""

    champion: Predictor
    challenger: Predictor | None
    state: Rollout


def as_good(quality: float, expert: float) -> float:
    """The probability that an answer is as good as the expert's, as two predictions of being right have it:
    where the expert is right more often, the difference is what is lost."""
    return min(1.0, 1.0 - (expert - quality))


class Learning:
    """The event loop's, but for what is said to run in a thread. Without a folder nothing is learned."""

    def __init__(
        self, folder: Path | None, *, leads: bool, load: Callable[[str], Predictor] | None = None
    ) -> None:
        """`leads`: of several processes this one decides when to learn; verdicts are everybody's."""
        self._folder = folder
        self._load = load or load_predictor
        self._leads = leads
        self._config = RoutingConfig()
        self._loaded: dict[str, Predictor] = {}  # by what the configuration calls it
        self._raters: Raters | None = None
        self._models: dict[str, str] = {}  # of each tier: verdicts on another one say nothing
        self._verdicts: VerdictTable | None = None
        self._table: LearningTable | None = None
        self._book = QualityBook()
        self._rules = RolloutRules()
        self._seen = 0  # the number of the latest verdict that the book has
        self._version = -1  # of the table

    # ------------------------------------------------------------ configuration

    def prepare(self, config: RoutingConfig) -> Predictor:
        """Load the predictor that is configured. Raises ConfigError; changes nothing that is in use."""
        if config.predictor not in self._loaded:
            self._loaded[config.predictor] = self._load(config.predictor)
        return self._loaded[config.predictor]

    def configure(self, config: RoutingConfig, models: Mapping[str, str]) -> None:
        """Use what was prepared, for tiers that ask these models."""
        base = self.prepare(config)
        if self._verdicts is None and self._folder is not None:
            database = Database(self._folder)
            self._verdicts, self._table = VerdictTable(database), LearningTable(database)
        if config == self._config and models == self._models and self._raters is not None:
            return
        self._config, self._models = config, dict(models)
        self._raters = Raters(base, None, Rollout(champion=base.version))
        self._book = QualityBook(config.monitor.threshold)
        self._seen, self._version = 0, -1
        if self._table is not None:
            self._book.restore(self._table.promoted())
            while (news := self._news())[0]:
                self._keep(self._follow(news))
            self._follow(news)

    # ------------------------------------------------------------ what the router asks

    @property
    def raters(self) -> Raters:
        assert self._raters is not None, "it is configured before anybody is routed"
        return self._raters

    def arm(self, request: str) -> str:
        """Who decides about this request."""
        return self.raters.state.decider(request, self._rules.share)

    def checks(self, version: str) -> float:
        """By what the share of answers that are checked is multiplied, where this predictor decided."""
        raters = self.raters
        if raters.challenger is None:
            return 1.0
        arm: Arm = "challenger" if version == raters.challenger.version else "champion"
        return self._rules.checks(raters.state, arm)

    @property
    def space(self) -> str:
        """What vectors are of: heads that were learned here are for those of one predictor."""
        return self._loaded[self._config.predictor].version

    def predictor(self, request: str) -> Predictor:
        raters = self.raters
        if raters.challenger is not None and self.arm(request) == "challenger":
            return raters.challenger
        return raters.champion

    def blended(self, tier: str, region: str, predicted: float, expert: float) -> float:
        known = as_good(predicted, expert)
        corrected = self._book.corrected(tier, region, known)
        return predicted if corrected == known else max(0.0, expert - (1.0 - corrected))

    def closed(self, tier: str, region: str) -> bool:
        return self._book.is_promoted(tier, region)

    def promoted(self) -> list[tuple[str, str, float]]:
        return self._book.promoted()

    # ------------------------------------------------------------ verdicts

    def spent_today(self) -> int:
        """What checks have cost so far today (UTC), in picodollars."""
        now = time.time()
        return 0 if self._verdicts is None else self._verdicts.spent(now - now % 86_400.0)

    async def add(self, row: VerdictRow) -> None:
        """Keep a verdict and act on it."""
        if self._verdicts is not None:
            await asyncio.to_thread(self._verdicts.add, row)
            await self.refresh()

    async def refresh(self) -> None:
        """Take over what this process and others have found out."""
        if self._table is not None:
            changes = self._follow(await asyncio.to_thread(self._news))
            await asyncio.to_thread(self._keep, changes)

    def _news(self) -> tuple[list[Seen], Raters | None]:
        """In a thread: verdicts that the book does not have, and who rates now if that has changed."""
        assert self._verdicts is not None
        assert self._table is not None
        version = self._table.version()
        raters = None
        if version != self._version:
            raters, self._version = self._current(self._table), version
        return self._verdicts.after(self._seen), raters

    def _follow(self, news: tuple[list[Seen], Raters | None]) -> list[Change]:
        """Count what is new; what follows from it."""
        seen, raters = news
        changes: list[Change] = []
        if raters is not None:
            if self._raters is not None and raters.champion.version != self._raters.champion.version:
                logger.info("Requests are rated by %s now.", raters.champion.version)
                self._book.use_predictions_since(raters.state.since)
            self._raters = raters
        for verdict in seen:
            if verdict.id <= self._seen:
                continue
            self._seen = verdict.id
            if self._models.get(verdict.tier) != verdict.model:
                continue
            change = self._book.add(
                verdict.tier, verdict.region, verdict.outcome, verdict.at, verdict.predicted
            )
            if change is not None:
                changes.append(change)
        return changes

    def _keep(self, changes: list[Change]) -> None:
        """In a thread: for other processes, and the next start."""
        for change in changes:
            if self._table is not None and self._table.change(change):
                way = "go further up from" if change.promoted else "may go to"
                logger.warning("Queries about %s %s %s: %s", change.region, way, change.tier, change.reason)

    def _current(self, table: LearningTable) -> Raters:
        """Who rates, as the store has it; heads that were learned for another predictor are none of ours."""
        base = self._loaded[self._config.predictor]
        _, state = table.rollout()
        champion = None if state is None else self._stored(table, base, state.champion)
        if state is None or champion is None:
            return Raters(base, None, Rollout(champion=base.version))
        challenger = self._stored(table, base, state.challenger) if state.challenger else None
        return Raters(champion, challenger, state)

    @staticmethod
    def _stored(table: LearningTable, base: Predictor, version: str) -> Predictor | None:
        if version == base.version:
            return base
        found = table.predictor(version)
        if found is None or found.space != base.version:
            return None
        return base.refitted(unpack_heads(found.heads), version)

    # ------------------------------------------------------------ learning

    async def learn(self) -> None:
        """Where there is reason to: fit anew, put on trial, take into use or back."""
        if self._leads and self._table is not None:
            await asyncio.to_thread(self.learn_at, time.time())
            await self.refresh()

    def learn_at(self, now: float) -> None:
        """In a thread: the next step that verdicts give reason for, at this Unix time."""
        assert self._verdicts is not None
        assert self._table is not None
        table, verdicts = self._table, self._verdicts
        raters = self._current(table)
        number, state = table.rollout()
        if state is None or state.champion != raters.champion.version:
            state = Rollout(champion=raters.champion.version, since=now)
            table.set_rollout(number, state, [])
            return
        later, events = self._rules.step(state, verdicts.trials(state.since), now)
        if later != state:
            table.set_rollout(number, later, events)
            self._tell(events)
            return
        if state.stage == "steady":
            self._retrain(table, verdicts, raters, number, state, now)
        verdicts.prune(now - KEPT_SECONDS)

    def _retrain(
        self,
        table: LearningTable,
        verdicts: VerdictTable,
        raters: Raters,
        number: int,
        state: Rollout,
        now: float,
    ) -> None:
        monitor = self._config.monitor
        tried = [event.at for what in (LEARNED, NOT_LEARNED) for event in table.events(1, what)]
        last = max([state.since, *tried])
        rule = RetrainRule(threshold=monitor.upgrade_threshold, days=monitor.retrain_days)
        reason = rule.reason(*verdicts.upgrades(last), last, now)
        if reason is None:
            return
        base = self._loaded[self._config.predictor]
        try:
            made = retrain(raters.champion.heads, verdicts.rows(base.version))
        except PenstockError as error:
            table.record([Event(now, NOT_LEARNED, raters.champion.version, f"{reason} {error}")])
            return
        if not made.changed:
            why = " ".join(made.refused.values()) or "There are no verdicts with vectors to learn from."
            table.record([Event(now, NOT_LEARNED, raters.champion.version, f"{reason} {why}")])
            return
        version = f"{base.version}+{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}"
        table.save(StoredPredictor(version, int(now), base.version, pack_heads(made.heads), reason))
        begun, events = self._rules.begin(state, version, now)
        table.set_rollout(number, begun, [Event(now, LEARNED, version, reason), *events])
        self._tell(events)

    @staticmethod
    def _tell(events: list[Event]) -> None:
        for event in events:
            logger.warning("The predictor %s: %s. %s", event.subject, event.what, event.reason)
