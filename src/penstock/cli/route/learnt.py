"""What the monitor has decided, as the report says it: regions that were promoted, predictors on trial."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from penstock.aio.monitor import Event, Promotion, Rollout
from penstock.gateway.store import Database
from penstock.gateway.store.learning import LearningTable

SHOWN: Final = 5  # events


@dataclass(frozen=True, slots=True)
class Learnt:
    promoted: tuple[Promotion, ...] = ()
    rollout: Rollout | None = None
    events: tuple[Event, ...] = ()  # the latest first

    def sentences(self) -> list[str]:
        lines = [
            f"Since {_day(at)} the tier {tier} is skipped for {region}"
            f"{f' of {tenant}' if tenant else ''}: its answers were not good enough."
            for tier, region, tenant, at in self.promoted
        ]
        state = self.rollout
        if state is not None:
            on_trial = f"; {state.challenger} is on trial ({state.stage}) since {_day(state.since)}"
            lines.append(f"Predictor: {state.champion}{on_trial if state.challenger else ''}.")
        lines += [f"{_day(event.at)}  {event.what} {event.subject}: {event.reason}" for event in self.events]
        return lines

    def as_json(self) -> dict[str, object]:
        state = self.rollout
        return {
            "promoted": [
                {"tier": tier, "region": region, "tenant": tenant, "since": at}
                for tier, region, tenant, at in self.promoted
            ],
            "rollout": None
            if state is None
            else {
                "champion": state.champion,
                "challenger": state.challenger or None,
                "stage": state.stage,
                "since": state.since,
            },
            "events": [
                {"at": event.at, "what": event.what, "subject": event.subject, "reason": event.reason}
                for event in self.events
            ],
        }


def learnt_in(database: Database) -> Learnt:
    table = LearningTable(database)
    return Learnt(tuple(table.promoted()), table.rollout()[1], tuple(table.events(SHOWN)))


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
