"""What is different in a new configuration, and what of it a running server can take over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.config.sections import GatewayConfig
from penstock.config.settings import Settings, options

# Flat options that are looked up when they are needed; all others are bound, started or handed out once.
RELOADABLE = frozenset({"api_keys", "drain_seconds"})
_UNNAMED = ("routing", "cache", "queue", "retry", "health", "slo", "metrics", "tracing", "console", "slow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Names; a backend's is `model/backend`."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    models: Difference  # a model is changed also when only its backends are
    backends: Difference
    tiers: Difference
    tenants: Difference
    sections: tuple[str, ...]  # of those without names, such as queue and retry, those that differ

    def __bool__(self) -> bool:
        return bool(self.models or self.backends or self.tiers or self.tenants or self.sections)

    def __str__(self) -> str:
        """For a log line: `models +big -old ~chat; tenants +acme; queue`."""
        parts = [
            f"{name} {_marked(getattr(self, name))}"
            for name in ("models", "backends", "tiers", "tenants")
            if getattr(self, name)
        ]
        return "; ".join([*parts, *self.sections]) or "nothing"


def changes(old: GatewayConfig, new: GatewayConfig) -> Changes:
    return Changes(
        models=_difference(_models(old), _models(new)),
        backends=_difference(_backends(old), _backends(new)),
        tiers=_difference({tier.name: tier for tier in old.tiers}, {tier.name: tier for tier in new.tiers}),
        tenants=_difference(
            {tenant.name: tenant for tenant in old.tenants}, {tenant.name: tenant for tenant in new.tenants}
        ),
        sections=tuple(name for name in _UNNAMED if getattr(old, name) != getattr(new, name)),
    )


def needs_restart(old: Settings, new: Settings) -> tuple[str, ...]:
    """The flat options that differ and keep their old value as long as the server runs."""
    return tuple(
        name for name in options() if name not in RELOADABLE and getattr(old, name) != getattr(new, name)
    )


def _models(config: GatewayConfig) -> dict[str, Any]:
    return {model.name: model for model in config.models}


def _backends(config: GatewayConfig) -> dict[str, Any]:
    return {f"{model.name}/{backend.name}": backend for model in config.models for backend in model.backends}


def _difference(old: dict[str, Any], new: dict[str, Any]) -> Difference:
    return Difference(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in new if name in old and new[name] != old[name]),
    )


def _marked(difference: Difference) -> str:
    marks = (("+", difference.added), ("-", difference.removed), ("~", difference.changed))
    return " ".join(mark + name for mark, names in marks for name in names)
