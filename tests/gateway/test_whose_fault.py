"""What a failure means: for the replica's health, and for who may answer in its place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock.config import GatewayConfig, HealthConfig, ModelConfig, TenantConfig
from penstock.gateway.accounts import Accounts, Caller, KeyRing
from penstock.gateway.backends import BackendError
from penstock.gateway.deployment import Deployment
from penstock.gateway.discovery import SharedRegistry
from penstock.gateway.drains import Drains
from penstock.gateway.exchange import DiscardedError, Exchange
from penstock.gateway.health import Health, unwatched_limits
from penstock.gateway.state import Gateway
from penstock.observe.metrics import Metrics
from tests.backends import ask


class Failing:
    """A backend that raises `error`."""

    name = "failing"
    operations = frozenset({"createChatCompletion"})
    upstream_model = "m"
    vision = prioritizes = restarts = False
    capacity = 100

    def __init__(self, error: BackendError | DiscardedError) -> None:
        self.health = Health(unwatched_limits(HealthConfig()), time.monotonic())
        self.error = error

    def load(self) -> None:
        return None

    async def answer(self, exchange: Exchange) -> None:
        raise self.error


def door(config: GatewayConfig) -> Gateway:
    deployments = [Deployment(model, config, None) for model in config.models]
    registry, drains = SharedRegistry(Path("unused")), Drains(Path("unused"))
    return Gateway(config, deployments, KeyRing(), Accounts.open(None), Metrics(), registry, drains)


@pytest.mark.parametrize(("at_fault", "state"), [(True, "unhealthy"), (False, "healthy")])
async def test_only_what_a_replica_is_to_blame_for_takes_it_out(at_fault: bool, state: str) -> None:
    gateway = door(GatewayConfig(models=(ModelConfig(name="m"),)))
    backend = Failing(BackendError("It failed.", at_fault=at_fault))
    gateway.deployments["m"].dispatcher.add(backend, 1.0)  # type: ignore[arg-type]
    for _ in range(20):
        with pytest.raises(BackendError):
            await ask(gateway, "createChatCompletion", {"messages": []})
    assert backend.health.state(time.monotonic()) == state


async def test_answers_that_were_taken_back_speak_for_the_replica() -> None:
    gateway = door(GatewayConfig(models=(ModelConfig(name="m"),)))
    backend = Failing(DiscardedError())
    gateway.deployments["m"].dispatcher.add(backend, 1.0)  # type: ignore[arg-type]
    for number in range(100):
        backend.error = BackendError("It failed.") if number % 5 == 4 else DiscardedError()
        with pytest.raises((BackendError, DiscardedError)):
            await ask(gateway, "createChatCompletion", {"messages": []})
    assert backend.health.state(time.monotonic()) == "healthy"


async def test_a_fallback_that_the_tenant_may_not_use_is_passed_over() -> None:
    config = GatewayConfig(
        models=(
            ModelConfig(name="first", fallbacks=("dear", "other")),
            ModelConfig(name="dear"),
            ModelConfig(name="other"),
        ),
        tenants=(TenantConfig(name="acme", models=("first", "other")),),
    )
    gateway = door(config)
    first = gateway.deployments["first"]
    assert [each.name for each in gateway.fallbacks(first, Caller("acme"))] == ["other"]
    assert [each.name for each in gateway.fallbacks(first, Caller("someone"))] == ["dear", "other"]
