"""The ledger's table: sums that are exact, however large and however asked for."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.gateway.store import Database, Tally, UsageTable
from penstock.gateway.store.usage import DOLLAR, PARTS, Account, total

accounts = st.tuples(
    st.sampled_from(["acme", "zoo"]),
    st.sampled_from(["small", "large"]),
    st.sampled_from(["2026-01-30", "2026-01-31", "2026-02-01"]),
)
amounts = st.builds(
    Tally,
    requests=st.integers(0, 5),
    prompt=st.integers(0, 10**9),
    completion=st.integers(0, 10**9),
    cost=st.one_of(st.integers(0, 3 * DOLLAR), st.integers(0, 10**24)),
    failed=st.integers(0, 5),
)


@settings(max_examples=40)
@given(
    batches=st.lists(st.dictionaries(accounts, amounts, max_size=4), max_size=8),
    by=st.lists(st.sampled_from(PARTS), min_size=1, unique=True),
)
def test_whatever_is_added_in_whatever_groups_the_totals_are_exact(
    batches: list[dict[Account, Tally]], by: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = UsageTable(Database(Path(folder)))
        expected: dict[tuple[str, ...], Tally] = {}
        for batch in batches:
            table.add(batch)
            for (tenant, model, day), tally in batch.items():
                parts = {"tenant": tenant, "model": model, "day": day}
                expected.setdefault(tuple(parts[part] for part in by), Tally()).add(tally)
        rows = table.totals(by)  # type: ignore[arg-type]
        assert {tuple(getattr(row, part) for part in by): row.tally for row in rows} == expected
        assert [[getattr(row, part) for part in by] for row in rows] == sorted(map(list, expected))
        month = sum(
            tally.cost
            for batch in batches
            for (tenant, _, day), tally in batch.items()
            if tenant == "acme" and day.startswith("2026-01")
        )
        assert table.month_cost("acme", "2026-01") == month


def test_totals_can_be_asked_for_a_tenant_a_model_and_some_days(tmp_path: Path) -> None:
    table = UsageTable(Database(tmp_path))
    table.add(
        {
            (tenant, model, f"2026-01-{day:02}"): Tally(requests=day)
            for tenant in ("acme", "zoo")
            for model in ("small", "large")
            for day in range(1, 11)
        }
    )
    assert total(table.totals(tenant="acme", model="small")).requests == 55
    assert total(table.totals(since="2026-01-09")).requests == 4 * 19
    assert total(table.totals(until="2026-01-02", tenant="zoo")).requests == 2 * 3
    assert table.totals(tenant="nobody") == []
    assert [(row.tenant, row.model, row.day) for row in table.totals(["model"])] == [
        ("", "large", ""),
        ("", "small", ""),
    ]
