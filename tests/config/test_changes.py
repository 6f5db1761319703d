"""What a reload changes, and what it cannot."""

from __future__ import annotations

from penstock.config import (
    BackendConfig,
    GatewayConfig,
    ModelConfig,
    QueueConfig,
    Settings,
    TenantConfig,
    changes,
    needs_restart,
)


def model(name: str, *urls: str, balance: str = "prefix") -> ModelConfig:
    backends = tuple(BackendConfig(name=url, kind="vllm", url=f"http://{url}") for url in urls)
    return ModelConfig(name=name, backends=backends, balance=balance)


def test_the_same_configuration_changes_nothing() -> None:
    config = GatewayConfig(models=(model("a", "x"),), tenants=(TenantConfig(name="t"),))
    found = changes(config, GatewayConfig(models=(model("a", "x"),), tenants=(TenantConfig(name="t"),)))
    assert not found
    assert str(found) == "nothing"


def test_models_backends_tenants_and_sections_are_told_apart() -> None:
    old = GatewayConfig(
        models=(model("same", "x"), model("gone", "y"), model("other", "z", "v")),
        tenants=(TenantConfig(name="t"), TenantConfig(name="u")),
    )
    new = GatewayConfig(
        models=(model("same", "x"), model("other", "z", "w"), model("new", "q")),
        tenants=(TenantConfig(name="t", weight=2.0),),
        queue=QueueConfig(wait=1.0),
    )
    found = changes(old, new)
    assert (found.models.added, found.models.removed, found.models.changed) == (
        ("new",),
        ("gone",),
        ("other",),
    )
    assert found.backends.added == ("other/w", "new/q")
    assert found.backends.removed == ("gone/y", "other/v")
    assert found.backends.changed == ()
    assert (found.tenants.removed, found.tenants.changed) == (("u",), ("t",))
    assert found.sections == ("queue",)
    assert str(found) == (
        "models +new -gone ~other; backends +other/w +new/q -gone/y -other/v; tenants -u ~t; queue"
    )


def test_a_model_whose_balance_changed_keeps_its_backends() -> None:
    found = changes(
        GatewayConfig(models=(model("a", "x"),)), GatewayConfig(models=(model("a", "x", balance="session"),))
    )
    assert found.models.changed == ("a",)
    assert not found.backends


def test_flat_options_that_need_a_restart_are_named() -> None:
    old = Settings()
    new = Settings(port=1, workers=2, api_keys=("k",), drain_seconds=1.0, precision="float32")
    assert needs_restart(old, new) == ("port", "workers", "precision")
    assert needs_restart(old, old) == ()
