"""One typed configuration, and its errors: flags > environment (PENSTOCK_*) > penstock.yaml > defaults.

`Settings` lists every option once, with its help, spellings and parser; the command line,
the environment, the file and the documentation are read off that list. Knows the engine's
option names (`engine.config`), never the engine, the network or a terminal.
"""

from penstock.config.catalogue import Option
from penstock.config.load import load_settings
from penstock.config.models import engine_settings, models_of
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
    TimeoutConfig,
)
from penstock.config.settings import Settings, options, options_table

__all__ = [
    "BackendConfig",
    "DiscoverConfig",
    "GatewayConfig",
    "HealthConfig",
    "ModelConfig",
    "Option",
    "PriceConfig",
    "QueueConfig",
    "RetryConfig",
    "Settings",
    "SloConfig",
    "TenantConfig",
    "TimeoutConfig",
    "engine_settings",
    "load_settings",
    "models_of",
    "options",
    "options_table",
]
