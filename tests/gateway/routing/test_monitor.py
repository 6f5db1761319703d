"""The monitor beside a router: which answers are checked, with whose leave, and for how much money."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.aio.books import RouteTally
from penstock.aio.monitor import Rollout
from penstock.aio.retrain import pack_heads
from penstock.config import (
    BackendConfig,
    GatewayConfig,
    HealthConfig,
    ModelConfig,
    MonitorConfig,
    PriceConfig,
    RoutingConfig,
    TenantConfig,
    TierConfig,
)
from penstock.gateway.accounts import Caller
from penstock.gateway.backends.relay import RelayBackend
from penstock.gateway.call import Call
from penstock.gateway.deployment import Deployment
from penstock.gateway.exchange import Exchange
from penstock.gateway.inquiry import Inquiry
from penstock.gateway.inside import InsideAnswer
from penstock.gateway.routing import monitor as monitoring
from penstock.gateway.routing.learning import Learning
from penstock.gateway.routing.orchestrator import Orchestrator
from penstock.gateway.store import Database
from penstock.gateway.store.learning import LearningTable, StoredPredictor
from penstock.gateway.store.routes import RouteLedger, RouteTable
from penstock.gateway.store.verdicts import VerdictTable
from penstock.observe.metrics import Metrics
from penstock.protocol.openapi import OPERATIONS
from penstock.protocol.shapes import UsageCount
from tests.gateway.routing.test_learning import OneNumber, head

BY_NAME = {operation.name: operation for operation in OPERATIONS}
CHAT = "createChatCompletion"
QUESTION = {"model": "auto", "messages": [{"role": "user", "content": "What is 3 + 4?"}]}
EVERYBODY = Caller("acme")
INSIDE = Caller("penstock", salt="penstock", inside=True)


def chat_answer(text: str) -> bytes:
    choice = {
        "index": 0,
        "text": text,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 10, "completion_tokens": 8}
    return msgspec.json.encode({"choices": [choice], "usage": usage})


def response_answer(text: str) -> bytes:
    output = [{"type": "message", "content": [{"type": "output_text", "text": text}]}]
    return msgspec.json.encode({"status": "completed", "output": output})


@pytest.fixture(autouse=True)
def no_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To load one takes longer than all of this."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))


@dataclass
class Inside:
    """Stands where the server asks itself; keeps what it was asked."""

    cost: int = 5
    body: bytes = field(default_factory=lambda: chat_answer("The answer is 7."))
    asked: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    held: asyncio.Event | None = None  # answers wait for it

    async def __call__(
        self, operation: str, body: Mapping[str, Any], *, tier: str, seconds: float = 0
    ) -> InsideAnswer:
        self.asked.append((operation, tier, body))
        if self.held is not None:
            await self.held.wait()
        return InsideAnswer(200, self.body, self.cost)


class Place:
    """An orchestrator of two tiers. `small` is good enough for everything."""

    def __init__(self, folder: Path, *, enabled: bool = True, budget: float = 10_000.0) -> None:
        backends = (BackendConfig(name="b", kind="openai", url="http://127.0.0.1:9", model="m"),)
        models = tuple(ModelConfig(name=name, backends=backends) for name in ("small", "large"))
        prices = {"small": PriceConfig(input=1, output=1), "large": PriceConfig(input=1000, output=1000)}
        watch = MonitorConfig(enabled=enabled, share=1.0, daily_budget=budget, tiers=("small",))
        self.config = GatewayConfig(
            models=models,
            tiers=tuple(TierConfig(name=each, model=each, like=each, price=prices[each]) for each in prices),
            routing=RoutingConfig(target=0.5, monitor=watch),
        )
        self.deployments = {model.name: Deployment(model, self.config, None) for model in models}
        for model in models:
            # Never started: it is not asked, but could be.
            self.deployments[model.name].dispatcher.add(RelayBackend(model, backends[0], HealthConfig()), 1.0)
        self.predictor = OneNumber({"small": head(0.0, 3.0), "large": head(0.0, 3.1)})
        self.folder, self.inside = folder, Inside()
        self.table = RouteTable(Database(folder))
        self.learning = Learning(folder, leads=True, load=lambda _: self.predictor)
        self.orchestrator = Orchestrator(self.learning, RouteLedger(self.table), Metrics(), self.inside)
        self.orchestrator.prepare(self.config)
        self.orchestrator.configure(self.config, self.deployments)

    async def serve(
        self,
        body: Mapping[str, Any] = QUESTION,
        *,
        operation: str = CHAT,
        caller: Caller = EVERYBODY,
        allowed: tuple[str, ...] = ("small", "large"),
        headers: Mapping[str, str] | None = None,
        tokens: int = 8,
    ) -> Exchange:
        """One request, answered by the tier that is chosen for it."""
        given = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        scope = {"type": "http", "method": "POST", "headers": given}
        call = Call(scope, asyncio.Event().wait, _nowhere)  # type: ignore[arg-type]
        inquiry = Inquiry(operation, msgspec.json.encode(body))
        exchange = Exchange(call, BY_NAME[operation], inquiry, caller, time.monotonic())
        tenant = TenantConfig(name=caller.tenant)
        models = [self.deployments[name] for name in allowed]
        route = exchange.route = await self.orchestrator.route(exchange, tenant, models)
        tier, usage = route.steps[0], UsageCount(10, tokens)
        exchange.tier = tier.name

        async def go() -> None:
            answer = response_answer if operation == "createResponse" else chat_answer
            await exchange.answer(answer("The answer is 7."), usage)

        await self.orchestrator.watched(exchange, tier, go, second_look=False)
        self.orchestrator.finished(exchange, tenant, "ok", usage, 1)
        return exchange

    @asynccontextmanager
    async def running(self) -> Any:
        task = asyncio.create_task(self.orchestrator.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def verdicts(self) -> list[str]:
        """What was found, without an order."""
        tallies = VerdictTable(Database(self.folder)).tallies()
        kinds = ("same", "unclear", "expert_better", "low_better")
        return [kind for tally in tallies for kind in kinds for _ in range(getattr(tally, kind))]

    def booked(self) -> dict[tuple[str, str], RouteTally]:
        """By tenant and tier."""
        self.orchestrator.flush()
        return {(tenant, tier): tally for (tenant, _, tier), tally in self.table.totals().items()}


async def _nowhere(message: Any) -> None:
    """Nobody listens."""


async def until(true: Callable[[], bool]) -> None:
    for _ in range(2000):
        if true():
            return
        await asyncio.sleep(0.005)
    raise TimeoutError


async def test_a_clients_answer_is_checked_and_a_request_of_the_servers_own_is_neither_checked_nor_booked(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    async with place.running():
        await place.serve(caller=INSIDE)
        await place.serve()
        await until(lambda: bool(place.verdicts()))
    assert place.verdicts() == ["same"]
    assert [tier for _, tier, _ in place.inside.asked] == ["large"]
    assert not place.orchestrator._monitor._sampler.waiting
    assert {tenant for tenant, _ in place.booked()} == {"acme"}


@pytest.mark.parametrize(
    "how",
    [
        {"allowed": ("small",)},
        {"headers": {"x-penstock-tier": "small"}},
        {"operation": "createResponse", "body": {"input": "Go on.", "previous_response_id": "r"}},
        {"operation": "createResponse", "body": {"input": "Do it.", "tools": [{"type": "mcp"}]}},
        {"operation": "createCompletion", "body": {"prompt": ["one", "two"]}},
        {"tokens": 100_000},
    ],
    ids=["expert not allowed", "pinned", "goes on", "acts", "two questions", "longer than a check may be"],
)
async def test_what_nobody_else_may_see_or_do_again_is_not_checked(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    place = Place(tmp_path)
    async with place.running():
        exchange = await place.serve(**how)
        assert exchange.tier == "small"
        await place.serve({**QUESTION, "seed": 1})
        await until(lambda: bool(place.verdicts()))
    assert [body.get("seed") for _, _, body in place.inside.asked] == [1]


async def test_a_check_is_asked_for_one_bounded_answer_that_is_kept_nowhere(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.running():
        await place.serve({**QUESTION, "n": 3, "stream": True, "store": True}, tokens=24)
        await place.serve({"input": "What is 3 + 4?"}, operation="createResponse")
        await until(lambda: len(place.inside.asked) == 2)
        await until(lambda: bool(place.verdicts()))
    chat, response = (body for _, _, body in place.inside.asked)
    assert chat == {**QUESTION, "max_tokens": chat["max_tokens"]}
    assert 256 <= chat["max_tokens"] <= 2048
    assert response["store"] is False
    assert 256 <= response["max_output_tokens"] <= 2048
    # Of three answers one is compared with the expert's one.
    assert place.booked()["acme", "small"].paired_tokens == 8


async def test_no_check_begins_that_could_cost_more_than_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of 256 tokens is expected, for a quarter of a dollar, but it may be four times as long. At
    the end of a day all of its money may be spent."""
    clock = SimpleNamespace(**{**vars(time), "time": lambda: 86_399.0})
    monkeypatch.setattr(monitoring, "time", clock)
    place = Place(tmp_path, budget=0.9)
    async with place.running():
        await place.serve()
        assert not place.orchestrator._monitor._sampler.waiting
        assert place.orchestrator._monitor._sampler.over_budget == 1


async def test_what_a_check_in_vain_has_cost_is_known_after_a_restart(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.inside.body = b"{}"
    async with place.running():
        await place.serve()
        await until(lambda: bool(place.verdicts()))
    assert place.verdicts() == ["unclear"]
    again = Place(tmp_path)
    assert again.orchestrator._monitor._sampler.spent(time.time()) == place.inside.cost


async def test_learning_goes_on_while_experts_are_slow_and_a_few_are_asked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(monitoring, "LEARN_SECONDS", 0.01)
    place = Place(tmp_path)
    learned: list[float] = []
    learn: Callable[[], Awaitable[None]] = place.learning.learn

    async def counted() -> None:
        learned.append(time.monotonic())
        await learn()

    monkeypatch.setattr(place.learning, "learn", counted)
    place.inside.held = asyncio.Event()
    async with place.running():
        for _ in range(monitoring.AT_ONCE + 3):
            await place.serve()
        await until(lambda: len(learned) > 5)
        await until(lambda: len(place.inside.asked) == monitoring.AT_ONCE)
        await until(lambda: len(learned) > 20)
        assert len(place.inside.asked) == monitoring.AT_ONCE
        place.inside.held.set()
        await until(lambda: len(place.verdicts()) == monitoring.AT_ONCE + 3)


async def test_a_client_does_not_choose_by_its_ids_who_decides_about_it(tmp_path: Path) -> None:
    place = Place(tmp_path, enabled=False)
    table = LearningTable(Database(tmp_path))
    heads = pack_heads(place.predictor.heads)
    table.save(StoredPredictor("base+1", 1, "base", heads, "for a test"))
    number, _ = table.rollout()
    table.set_rollout(number, Rollout(champion="base", challenger="base+1", stage="share", since=1.0), [])
    await place.learning.refresh()
    served = [await place.serve(headers={"x-request-id": "mine"}) for _ in range(200)]
    assert {exchange.call.id for exchange in served} == {"mine"}
    versions = {exchange.route.decision.model_version for exchange in served if exchange.route}
    assert versions == {"base", "base+1"}
