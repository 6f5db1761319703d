"""The router by itself: where it rates, and what it warns of."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from starlette.types import Message

from penstock.aio.lengths import OutputLengths
from penstock.aio.predictor import CalibrationSample, Rating
from penstock.aio.query import Query
from penstock.config import GatewayConfig, TenantConfig
from penstock.errors import InvalidRequestError
from penstock.gateway.accounts import Caller
from penstock.gateway.call import Call
from penstock.gateway.deployment import Deployment
from penstock.gateway.exchange import Exchange
from penstock.gateway.inquiry import Inquiry
from penstock.gateway.routing.learning import Learning
from penstock.gateway.routing.router import Router
from penstock.protocol.errors import HTTPError
from penstock.protocol.openapi import OPERATIONS
from tests.gateway.routing.test_learning import BASE, REFERENCES, OneNumber, ladder

# Of ten queries the small one is right about half.
SAMPLE = CalibrationSample(
    REFERENCES,
    np.tile(np.array([[0.9, 1.0], [0.1, 1.0]], np.float32), (5, 1)),
    np.tile(np.array([[1.0, 1.0], [0.0, 1.0]], np.float32), (5, 1)),
)


def router(config: GatewayConfig, predictor: OneNumber, lengths: OutputLengths | None = None) -> Router:
    learning = Learning(None, leads=False, load=lambda _: predictor)
    learning.prepare(config)
    learning.configure(config.routing, {"low": "small", "top": "large"})
    deployments = {model.name: Deployment(model, config, None) for model in config.models}
    return Router(config, deployments, learning, lengths or OutputLengths())


def exchange(*headers: tuple[bytes, bytes], **fields: Any) -> Exchange:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None: ...

    call = Call({"type": "http", "method": "POST", "headers": headers}, receive, send)
    body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()
    [operation] = [each for each in OPERATIONS if each.name == "createChatCompletion"]
    return Exchange(call, operation, Inquiry(operation.asks, body), Caller("acme"), time.monotonic())


@pytest.mark.parametrize("quick", [True, False])
async def test_a_predictor_that_takes_long_does_not_hold_up_the_event_loop(quick: bool) -> None:
    rated_in: list[threading.Thread] = []

    @dataclass(frozen=True)
    class Watched(OneNumber):
        def rate(self, query: Query, references: Sequence[str]) -> Rating:
            rated_in.append(threading.current_thread())
            return super().rate(query, references)

    config = ladder()
    made = router(config, Watched(BASE.heads, quick=quick))
    with pytest.raises(HTTPError, match="No tier that could answer this is up"):  # nobody is behind them
        await made.route(exchange(), TenantConfig(name="acme"), made_deployments(made))
    assert [thread is threading.main_thread() for thread in rated_in] == [quick]


def made_deployments(made: Router) -> list[Deployment]:
    return [tier.deployment for tier in made.steps]


def warned(**tenant: object) -> list[str]:
    config = replace(ladder(), tenants=(TenantConfig(name="acme", **tenant),))  # type: ignore[arg-type]
    return list(router(config, replace(BASE, sample=SAMPLE)).warnings(config))


def test_a_tenant_that_is_held_to_a_tier_is_warned_of_a_target_which_that_one_cannot_keep() -> None:
    [warning] = warned(tier="low", quality_target=0.99)
    assert "(low) at most 50% can be expected" in warning
    assert warned(tier="top", quality_target=0.99) == []
    assert warned(tier="low") == []  # the target of all is not its own
    assert warned(quality_target=0.99) == []


COST = b"x-penstock-max-cost"


async def refusal(asked: Exchange, lengths: OutputLengths | None = None) -> str:
    """Why it is not answered: nobody is behind the tiers, so that it never is."""
    made = router(ladder(), BASE, lengths)
    with pytest.raises((HTTPError, InvalidRequestError)) as refused:
        await made.route(asked, TenantConfig(name="acme"), made_deployments(made))
    return str(refused.value)


async def test_long_answers_of_others_do_not_shut_out_whoever_has_a_cap() -> None:
    lengths = OutputLengths()
    for _ in range(3000):
        for tier in ("low", "top"):
            lengths.add(tier, "general", 10**8)
    # The lower tier takes a dollar for a million tokens: 0.0003 pay 300 of an answer.
    assert "low" not in await refusal(exchange((COST, b"0.0003")), lengths)
    assert "low: it costs more" in await refusal(exchange((COST, b"0.0002")), lengths)
    assert "low" not in await refusal(exchange((COST, b"0.0002"), max_tokens=150), lengths)


async def test_a_cap_that_is_said_twice_is_refused_whichever_comes_last() -> None:
    for caps in ((b"0.0001", b"1000"), (b"1000", b"0.0001")):
        said = [(COST, cap) for cap in caps]
        assert "x-penstock-max-cost must be one plain decimal" in await refusal(exchange(*said))
