"""What happens at the front door without anybody asking."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.config import GatewayConfig
from penstock.gateway.accounts import Accounts, KeyRing
from penstock.gateway.discovery import SharedRegistry
from penstock.gateway.drains import Drains
from penstock.gateway.routing.orchestrator import Orchestrator
from penstock.gateway.state import Gateway
from penstock.gateway.store import Database, UsageTable
from penstock.gateway.store.usage import total
from penstock.observe.metrics import Metrics
from tests.server import poll


class Unwritable(Orchestrator):
    """Its books cannot be written, for a reason that nobody thought of."""

    def flush(self) -> bool:
        raise OverflowError("a sum beyond all bounds")


async def test_books_that_cannot_be_written_do_not_keep_the_ledger_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def nobody(*_: Any, **__: Any) -> Any: ...

    metrics, accounts = Metrics(), Accounts.open(tmp_path)
    gateway = Gateway(
        GatewayConfig(),
        [],
        KeyRing(),
        accounts,
        metrics,
        SharedRegistry(tmp_path),
        Drains(tmp_path),
        Unwritable.open(None, metrics, nobody),
    )
    table = UsageTable(Database(tmp_path))
    clock = asyncio.create_task(gateway.keep_time())
    for _ in range(2):
        accounts.ledger.add("acme", "m", "2026-01-31", "ok")
        await asyncio.to_thread(poll, lambda: not accounts.ledger._pending)
    clock.cancel()
    await asyncio.to_thread(poll, lambda: total(table.totals()).requests == 2)
    assert "could not be written" in caplog.text
