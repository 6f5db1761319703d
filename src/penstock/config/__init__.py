"""One typed configuration, and its errors: flags > environment (PENSTOCK_*) > penstock.yaml > defaults.

`Settings` lists every flat option once, the sections theirs (models, tenants, queue, ...), with help and
parser; command line, environment, file and documentation are read off these lists. Knows the
engine's option names (`engine.config`), never the engine, the network or a terminal.
"""

from penstock.config.catalogue import Option
from penstock.config.changes import Changes, changes, needs_restart
from penstock.config.load import Examined, examine, load_settings
from penstock.config.models import engine_settings, models_of
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
from penstock.config.settings import Settings, options
from penstock.config.tables import SECTIONS, options_table, section_table

__all__ = [
    "SECTIONS",
    "BackendConfig",
    "CacheConfig",
    "CascadeConfig",
    "Changes",
    "ConsoleConfig",
    "DiscoverConfig",
    "Examined",
    "GatewayConfig",
    "HealthConfig",
    "MetricsConfig",
    "ModelConfig",
    "MonitorConfig",
    "ObjectivesConfig",
    "Option",
    "PriceConfig",
    "QueueConfig",
    "RetryConfig",
    "RoutingConfig",
    "Settings",
    "SloConfig",
    "SlowConfig",
    "TenantConfig",
    "TierConfig",
    "TimeoutConfig",
    "TracingConfig",
    "changes",
    "engine_settings",
    "examine",
    "load_settings",
    "models_of",
    "needs_restart",
    "options",
    "options_table",
    "section_table",
]
