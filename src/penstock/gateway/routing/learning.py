"""What is known of the tiers' quality: who predicts it, what verdicts say of it, what was learned of that."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.aio.monitor import Change, Event, Promotion, QualityBook, RetrainRule, Rollout, RolloutRules
from penstock.aio.monitor.rollout import Arm
from penstock.aio.predictor import Predictor
from penstock.aio.retrain import pack_heads, retrain, unpack_heads
from penstock.config import GatewayConfig, RoutingConfig
from penstock.errors import PenstockError
from penstock.gateway.routing.ladder import check_steps, models_of
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


@dataclass(slots=True, eq=False)
class _Known:
    """What is known under one configuration. Another one begins with another: what is still being read for
    this one then changes nothing any more."""

    config: RoutingConfig
    models: Mapping[str, str]  # of each tier: verdicts on another one say nothing
    base: Predictor  # as it was trained, before anything was learned here
    raters: Raters
    book: QualityBook
    seen: int = 0  # the number of the latest verdict that the book has
    version: int = -1  # of the table


@dataclass(frozen=True, slots=True)
class _News:
    verdicts: list[Seen]
    version: int  # of the table
    raters: Raters | None  # who rates now, if the table has changed


@dataclass(frozen=True, slots=True)
class _Store:
    verdicts: VerdictTable
    table: LearningTable


class Learning:
    """The event loop's, but for what is said to run in a thread. Without a folder nothing is learned."""

    def __init__(
        self, folder: Path | None, *, leads: bool, load: Callable[[str], Predictor] | None = None
    ) -> None:
        """`leads`: of several processes this one decides when to learn; verdicts are everybody's."""
        self._folder = folder
        self._load = load or load_predictor
        self._leads = leads
        self._rules = RolloutRules()
        self._store: _Store | None = None
        self._current: _Known | None = None
        self._next: _Known | None = None  # prepared, and not in use yet
        self._spent = (0.0, 0)  # since this midnight (Unix time), picodollars

    # ------------------------------------------------------------ configuration

    def prepare(self, config: GatewayConfig) -> None:
        """Read all that `configure` needs, the predictor's file once more: it may be another. May run in a
        thread. Raises ConfigError or StoreError; changes nothing that is in use."""
        base = self._load(config.routing.predictor)
        check_steps(config, base)
        self._next = self._knowing(config.routing, models_of(config), base)

    def configure(self, config: RoutingConfig, models: Mapping[str, str]) -> None:
        """Use what was prepared, for tiers that ask these models."""
        known, self._next = self._next, None
        if known is None or (known.config, known.models) != (config, models):
            known = self._knowing(config, dict(models), self._load(config.predictor))
        self._current = known

    def _knowing(self, config: RoutingConfig, models: Mapping[str, str], base: Predictor) -> _Known:
        """What the store has for this configuration; what is in use, where that is the same."""
        if self._store is None and self._folder is not None:
            database = Database(self._folder)
            self._store = _Store(VerdictTable(database), LearningTable(database))
        store, current = self._store, self._current
        if store is not None:
            midnight = _midnight()
            self._spent = midnight, store.verdicts.spent(midnight)
        if current is not None and (current.config, current.models, current.base.version) == (
            config,
            models,
            base.version,
        ):
            return current
        raters = Raters(base, None, Rollout(champion=base.version))
        known = _Known(config, models, base, raters, QualityBook(config.monitor.threshold))
        if store is not None:
            known.book.restore(store.table.promoted(models))
            while (news := self._news(store, known)).verdicts:
                self._keep(store, known, self._follow(known, news))
            self._follow(known, news)
        return known

    # ------------------------------------------------------------ what the router asks

    @property
    def _known(self) -> _Known:
        assert self._current is not None, "it is configured before anybody is routed"
        return self._current

    @property
    def raters(self) -> Raters:
        return self._known.raters

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
        return self._known.base.version

    def predictor(self, request: str) -> Predictor:
        raters = self.raters
        if raters.challenger is not None and self.arm(request) == "challenger":
            return raters.challenger
        return raters.champion

    def blended(self, tenant: str, tier: str, region: str, predicted: float, expert: float) -> float:
        known = as_good(predicted, expert)
        corrected = self._known.book.corrected(tier, region, known, tenant)
        return predicted if corrected == known else max(0.0, expert - (1.0 - corrected))

    def closed(self, tenant: str, tier: str, region: str) -> bool:
        return self._known.book.is_promoted(tier, region, tenant)

    def promoted(self) -> list[Promotion]:
        return self._known.book.promoted()

    # ------------------------------------------------------------ verdicts

    def spent_today(self) -> int:
        """What checks have cost so far today (UTC), in picodollars: as the store had it at the latest
        `prepare`, with what was added here since."""
        since, spent = self._spent
        return spent if since == _midnight() else 0

    async def add(self, row: VerdictRow) -> None:
        """Keep a verdict and act on it."""
        midnight = _midnight()
        self._spent = midnight, self.spent_today() + row.cost
        if self._store is not None:
            await asyncio.to_thread(self._store.verdicts.add, row)
            await self.refresh()

    async def refresh(self) -> None:
        """Take over what this process and others have found out."""
        store, known = self._store, self._known
        if store is None:
            return
        news = await asyncio.to_thread(self._news, store, known)
        if known is self._current:  # else it is about what was configured before
            changes = self._follow(known, news)
            await asyncio.to_thread(self._keep, store, known, changes)

    def _news(self, store: _Store, known: _Known) -> _News:
        """In a thread: verdicts that the book does not have, and who rates now if that has changed."""
        version = store.table.version()
        raters = None if version == known.version else _rating(store.table, known.base)
        return _News(store.verdicts.after(known.seen), version, raters)

    @staticmethod
    def _follow(known: _Known, news: _News) -> list[Change]:
        """Count what is new; what follows from it."""
        changes: list[Change] = []
        if news.raters is not None and news.version > known.version:
            raters, known.version = news.raters, news.version
            if raters.champion.version != known.raters.champion.version:
                logger.info("Requests are rated by %s now.", raters.champion.version)
                known.book.use_predictions_since(raters.state.since)
            known.raters = raters
        for verdict in news.verdicts:
            if verdict.id <= known.seen:
                continue
            known.seen = verdict.id
            if known.models.get(verdict.tier) != verdict.model:
                continue
            change = known.book.add(
                verdict.tier,
                verdict.region,
                verdict.outcome,
                verdict.at,
                verdict.predicted,
                tenant=verdict.tenant,
            )
            if change is not None:
                changes.append(change)
        return changes

    @staticmethod
    def _keep(store: _Store, known: _Known, changes: list[Change]) -> None:
        """In a thread: for other processes, and the next start."""
        for change in changes:
            if store.table.change(change, known.models[change.tier]):
                way = "go further up from" if change.promoted else "may go to"
                whose = f" of {change.tenant}" if change.tenant else ""
                logger.warning(
                    "Queries about %s%s %s %s: %s", change.region, whose, way, change.tier, change.reason
                )

    # ------------------------------------------------------------ learning

    async def learn(self) -> None:
        """Where there is reason to: fit anew, put on trial, take into use or back."""
        if self._leads and self._store is not None:
            await asyncio.to_thread(self.learn_at, time.time())
            await self.refresh()

    def learn_at(self, now: float) -> None:
        """In a thread: the next step that verdicts give reason for, at this Unix time."""
        assert self._store is not None, "there is a folder"
        table, verdicts, known = self._store.table, self._store.verdicts, self._known
        raters = _rating(table, known.base)
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
            self._retrain(known, self._store, raters, number, state, now)
        verdicts.prune(now - KEPT_SECONDS)

    def _retrain(
        self, known: _Known, store: _Store, raters: Raters, number: int, state: Rollout, now: float
    ) -> None:
        monitor, table, verdicts, base = known.config.monitor, store.table, store.verdicts, known.base
        tried = [event.at for what in (LEARNED, NOT_LEARNED) for event in table.events(1, what)]
        last = max([state.since, *tried])
        rule = RetrainRule(threshold=monitor.upgrade_threshold, days=monitor.retrain_days)
        reason = rule.reason(*verdicts.upgrades(last), last, now)
        if reason is None:
            return
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


def _midnight() -> float:
    """The beginning of this day (UTC), in Unix time."""
    now = time.time()
    return now - now % 86_400.0


def _rating(table: LearningTable, base: Predictor) -> Raters:
    """Who rates, as the store has it; heads that were learned for another predictor are none of ours."""
    _, state = table.rollout()
    champion = None if state is None else _stored(table, base, state.champion)
    if state is None or champion is None:
        return Raters(base, None, Rollout(champion=base.version))
    challenger = _stored(table, base, state.challenger) if state.challenger else None
    return Raters(champion, challenger, state)


def _stored(table: LearningTable, base: Predictor, version: str) -> Predictor | None:
    if version == base.version:
        return base
    found = table.predictor(version)
    if found is None or found.space != base.version:
        return None
    return base.refitted(unpack_heads(found.heads), version)
