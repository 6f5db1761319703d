"""The catalogues as the tables in docs/configuration.md."""

from __future__ import annotations

from typing import Any

from penstock.config.catalogue import Section, options_of
from penstock.config.observing import (
    ConsoleConfig,
    MetricsConfig,
    ObjectivesConfig,
    SlowConfig,
    TracingConfig,
)
from penstock.config.routing import CacheConfig, CascadeConfig, MonitorConfig, RoutingConfig
from penstock.config.sections import (
    BackendConfig,
    DiscoverConfig,
    GatewayConfig,
    HealthConfig,
    ModelConfig,
    PriceConfig,
    QueueConfig,
    RetryConfig,
    SloConfig,
    TenantConfig,
    TierConfig,
    TimeoutConfig,
)
from penstock.config.settings import options

# How each section is reached from the top of the file.
SECTIONS: dict[str, type] = {
    "The sections": GatewayConfig,
    "models.NAME": ModelConfig,
    "models.NAME.backends[]": BackendConfig,
    "models.NAME.backends[].discover": DiscoverConfig,
    "models.NAME.backends[].timeouts": TimeoutConfig,
    "models.NAME.price": PriceConfig,
    "models.NAME.slo": SloConfig,
    "tiers.NAME": TierConfig,
    "routing": RoutingConfig,
    "routing.cascade": CascadeConfig,
    "routing.monitor": MonitorConfig,
    "cache": CacheConfig,
    "tenants.NAME": TenantConfig,
    "queue": QueueConfig,
    "retry": RetryConfig,
    "health": HealthConfig,
    "slo": ObjectivesConfig,
    "metrics": MetricsConfig,
    "tracing": TracingConfig,
    "console": ConsoleConfig,
    "slow": SlowConfig,
}


def options_table() -> str:
    """The catalogue of flat options."""
    rows = ["| key | default | environment | flag | meaning |", "|---|---|---|---|---|"]
    for each in options().values():
        flag = "`MODEL` (positional)" if each.name == "model" else ", ".join(f"`{f}`" for f in each.flags)
        rows.append(f"| `{each.name}` | {_shown(each.default)} | `{each.variable}` | {flag} | {each.help} |")
    return "\n".join(rows)


def _shown(default: Any) -> str:
    if default is None:
        return "auto"
    if default == ():
        return "none"
    return f"`{str(default).lower()}`" if isinstance(default, bool) else f"`{default}`"


def section_table(section: type) -> str:
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for each in options_of(section).values():
        names = ", ".join(f"`{name}`" for name in (each.name, *each.aliases))
        if isinstance(each.kind, Section):
            rows.append(f"| {names} | | {each.help} |")
            continue
        default = "none" if each.default in (None, "") else _shown(each.default)
        choices = f" {each.kind.expects.capitalize()}." if each.kind.expects.startswith("one of") else ""
        rows.append(f"| {names} | {default} | {each.help}{choices} |")
    return "\n".join(rows)
