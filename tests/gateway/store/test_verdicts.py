"""Verdicts and what follows from them, in the store: counted once, found again, gone when they should be."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.aio.evaluate.dataset import read_dataset
from penstock.aio.monitor import Change, Event, QualityBook, Rollout, Trial
from penstock.gateway.store import Database
from penstock.gateway.store.learning import LearningTable, StoredPredictor
from penstock.gateway.store.verdicts import VerdictRow, VerdictTable, VerdictTally

ROW = VerdictRow(
    at=1000,
    tenant="acme",
    request="r1",
    tier="small",
    model="tiny-1b",
    expert="expert",
    reference="Phi-3-mini",
    region="maths",
    kind="number",
    judge="final number",
    outcome="same",
    score=0.97,
)


def row(**changes: Any) -> VerdictRow:
    return dataclasses.replace(ROW, **changes)


def vector(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path)


@pytest.fixture
def table(database: Database) -> VerdictTable:
    return VerdictTable(database)


@pytest.fixture
def learning(database: Database) -> LearningTable:
    return LearningTable(database)


def test_verdicts_are_counted_by_tier_region_and_outcome_since_a_time(table: VerdictTable) -> None:
    table.add(row(at=10, outcome="expert_better"))
    for outcome in ("same", "same", "low_better", "expert_better", "unclear"):
        table.add(row(outcome=outcome, cost=3))
    table.add(row(region="law"))
    assert table.tallies(since=100, until=1500) == [
        VerdictTally("small", "law", 1, 0, 0, 0, 0),
        VerdictTally("small", "maths", 2, 1, 1, 1, 15),
    ]
    table.add(row(tenant="zoo", region="law", at=2000))
    assert table.tallies(since=1500, tenant="zoo") == [VerdictTally("small", "law", 1, 0, 0, 0, 0)]
    assert table.tallies(since=1500, tenant="acme") == table.tallies(until=10) == []
    assert table.upgrades(since=100) == (6, 1)
    assert table.upgrades(since=5000) == (0, 0)
    assert table.spent(since=100) == 15


def test_probes_do_not_speak_for_learning_anew(table: VerdictTable) -> None:
    table.add(row(outcome="expert_better", probe=True))
    assert table.upgrades(since=0) == (0, 0)


def test_books_of_two_processes_that_follow_the_table_agree(tmp_path: Path) -> None:
    tables = [VerdictTable(Database(tmp_path)) for _ in range(2)]
    books, read = [QualityBook(), QualityBook()], [0, 0]
    for number in range(60):
        tables[number % 2].add(
            row(at=1000 + number, outcome="expert_better" if number % 3 else "same", predicted=0.9)
        )
        which = number % 2
        for seen in tables[which].after(read[which]):
            books[which].add(seen.tier, seen.region, seen.outcome, seen.at, seen.predicted)
            read[which] = seen.id
    for seen in tables[0].after(read[0]):
        books[0].add(seen.tier, seen.region, seen.outcome, seen.at, seen.predicted)
    assert books[0].promoted() == books[1].promoted() != []
    assert books[0].corrected("small", "maths", 0.9) == books[1].corrected("small", "maths", 0.9) < 0.9


def test_a_number_is_never_given_twice_even_when_the_latest_verdict_is_deleted(table: VerdictTable) -> None:
    table.add(row())
    last = table.add(row(tenant="zoo"))
    assert table.delete_tenant("zoo") == 1
    assert table.add(row()) > last
    assert len(table.after(last)) == 1


def test_vectors_come_back_for_learning_by_reference_in_order(table: VerdictTable) -> None:
    table.add(row(space="light-1", vector=vector(1, 2)))
    table.add(row(space="light-1", vector=vector(3, 4), outcome="expert_better"))
    table.add(row(space="light-1", vector=vector(5, 6), reference="Llama-3.1-8B"))
    table.add(row(space="light-1", vector=vector(7, 8), outcome="unclear"))
    table.add(row(space="other", vector=vector(9, 9, 9)))
    table.add(row(space="light-1"))
    rows = table.rows("light-1")
    assert set(rows) == {"Phi-3-mini", "Llama-3.1-8B"}
    assert rows["Phi-3-mini"].vectors.tolist() == [[1, 2], [3, 4]]
    assert rows["Phi-3-mini"].outcomes.tolist() == [1, 0]
    assert table.rows("light-1", most=1)["Llama-3.1-8B"].vectors.tolist() == [[5, 6]]
    assert table.rows("nothing") == {}


def test_agreeing_with_the_expert_is_as_right_as_the_expert_probably_is(table: VerdictTable) -> None:
    for outcome in ("same", "expert_better", "low_better"):
        table.add(row(space="light-1", vector=vector(1), outcome=outcome, expert_quality=0.7))
    assert table.rows("light-1")["Phi-3-mini"].outcomes.tolist() == [0.7, 0, 1]


def test_trials_are_clear_verdicts_that_two_models_had_rated(table: VerdictTable) -> None:
    table.add(row(predicted=0.9))
    table.add(row(predicted=0.9, challenged=0.8, outcome="unclear"))
    table.add(
        row(
            predicted=0.9,
            challenged=0.8,
            outcome="expert_better",
            arm="challenger",
            gain=0.1,
            challenger_gain=0.2,
        )
    )
    assert table.trials(0) == [Trial(1000, "challenger", False, 0.9, 0.8, 0.1, 0.2)]


def test_only_kept_text_is_exported_as_lines_that_training_reads(table: VerdictTable, tmp_path: Path) -> None:
    table.add(row(tenant="discreet"))
    for number in range(1200):
        table.add(
            row(
                question=f"What is {number} plus {number}?",
                answer="1",
                expert_answer="2",
                outcome="expert_better" if number % 2 else "low_better",
            )
        )
    lines = list(table.export())
    assert len(lines) == 1200
    assert json.loads(lines[1]) == {
        "query": "What is 1 plus 1?",
        "group": "maths",
        "outcomes": {"small": 0, "expert": 1},
        "answers": {"small": "1", "expert": "2"},
    }
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(b"\n".join(lines))
    data = read_dataset(path)
    assert len(data.texts) == 1200
    assert set(data.models) == {"small", "expert"}


def test_text_that_was_not_given_is_nowhere_in_the_file(database: Database, table: VerdictTable) -> None:
    table.add(row(vector=vector(1, 2), space="light-1"))
    stored = database.connection.execute("SELECT question, answer, expert_answer FROM verdicts").fetchall()
    assert stored == [(None, None, None)]


def test_old_verdicts_and_those_beyond_the_bound_go(table: VerdictTable) -> None:
    for at in (10, 20, 1000, 1001, 1002):
        table.add(row(at=at))
    assert table.prune(before=100) == 2
    assert table.prune(before=0, most=2) == 1
    assert [seen.at for seen in table.after(0)] == [1001, 1002]


def test_a_tenants_verdicts_can_be_deleted(table: VerdictTable, tmp_path: Path) -> None:
    table.add(row())
    table.add(row(tenant="zoo", question="secret"))
    assert table.count("zoo") == table.delete_tenant("zoo") == 1
    assert table.count("zoo") == 0
    assert not any(b"secret" in file.read_bytes() for file in tmp_path.iterdir())
    assert list(table.export()) == []
    assert len(table.after(0)) == 1


PROMOTED = Change("small", "maths", True, 1000.0, "It was bad.")


def test_a_promotion_is_kept_once_however_many_processes_see_it(learning: LearningTable) -> None:
    before = learning.version()
    assert learning.change(PROMOTED, "m")
    assert not learning.change(PROMOTED, "m")
    assert learning.promoted() == [("small", "maths", None, 1000)]
    assert learning.version() == before + 1
    assert learning.change(
        dataclasses.replace(PROMOTED, promoted=False, at=2000.0, reason="It is good."), "m"
    )
    assert learning.promoted() == []
    assert learning.events() == [
        Event(2000, "restored", "small maths", "It is good."),
        Event(1000, "promoted", "small maths", "It was bad."),
    ]
    assert [event.at for event in learning.events(what="promoted")] == [1000]


def test_a_book_that_is_built_again_after_a_restart_repeats_nothing(
    table: VerdictTable, learning: LearningTable
) -> None:
    for number in range(60):
        table.add(row(at=1000 + number, outcome="expert_better" if number < 20 else "same"))

    def built() -> list[bool]:
        book = QualityBook()
        book.restore(learning.promoted())
        changes = [
            book.add(seen.tier, seen.region, seen.outcome, seen.at, tenant=seen.tenant)
            for seen in table.after(0)
        ]
        return [learning.change(change, "m") for change in changes if change]

    assert built() == [True, True]
    assert built() == [False, False]
    assert learning.promoted() == []
    assert [event.what for event in learning.events()] == ["restored", "promoted"]


def test_of_two_processes_that_move_the_rollout_on_one_wins(learning: LearningTable) -> None:
    assert learning.rollout() == (0, None)
    state = Rollout(champion="v1", challenger="v2", stage="shadow", since=5.0)
    assert learning.set_rollout(0, state, [Event(5, "shadow", "v2", "Begins.")])
    assert not learning.set_rollout(0, Rollout(champion="v9"), [Event(6, "kept", "v9", "Too late.")])
    assert learning.rollout() == (1, state)
    assert [event.subject for event in learning.events()] == ["v2"]


def test_predictors_are_kept_as_long_as_they_may_be_needed(learning: LearningTable) -> None:
    learning.set_rollout(0, Rollout(champion="v0"), [])
    for number in range(9):
        learning.save(StoredPredictor(f"v{number}", number, "light-1", b"heads", "Learnt."))
    assert learning.predictor("v0") == StoredPredictor("v0", 0, "light-1", b"heads", "Learnt.")
    assert learning.predictor("v1") is None
    assert learning.predictor("v8") is not None


def test_events_are_bounded(learning: LearningTable) -> None:
    learning.record([Event(number, "refused", "v1", "Too little.") for number in range(1500)])
    events = learning.events(most=5000)
    assert (len(events), events[0].at, events[-1].at) == (1000, 1499, 500)
