"""What the orchestrator learns from requests that have ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.aio.decision import PINNED_BY_HEADER, Decision
from penstock.aio.predictor import Rating
from penstock.aio.query import query_of_text
from penstock.config import TenantConfig
from penstock.gateway.routing.orchestrator import Orchestrator
from penstock.gateway.routing.router import Route
from penstock.gateway.routing.wish import Wish
from penstock.observe.metrics import Metrics
from penstock.protocol.shapes import UsageCount
from tests.gateway.routing.test_router import exchange


async def nobody(*_: Any, **__: Any) -> Any: ...


@pytest.mark.parametrize("pinned", [True, False])
async def test_lengths_are_learned_from_requests_that_were_left_to_the_router_only(pinned: bool) -> None:
    orchestrator = Orchestrator.open(None, Metrics(), nobody)
    before = orchestrator._lengths.expected("low", "maths")
    asked = exchange()
    await asked.answer(b"{}", UsageCount(10, 5000))
    asked.tier = "low"
    for _ in range(20):
        decision = Decision(
            request="r",
            at=1.5,
            tenant="acme",
            region="maths",
            model_version="1",
            target=0.95,
            candidates=[],
            chosen="low",
            forced=PINNED_BY_HEADER if pinned else "",
        )
        rating = Rating((), (), "maths", np.zeros(1, np.float32))
        asked.route = Route([], decision, Wish(0.95), query_of_text("hi"), rating, {})
        orchestrator.finished(asked, TenantConfig(name="acme"), "ok", UsageCount(10, 5000), 0)
    assert (orchestrator._lengths.expected("low", "maths") > before) is not pinned
