"""What a configuration must meet before anything is changed for it."""

from __future__ import annotations

import dataclasses

from penstock.config import BackendConfig, Settings, models_of
from penstock.errors import ConfigError
from penstock.gateway.backends.registry import SERVERS


def check_change(before: Settings, after: Settings) -> None:
    """Raise ConfigError for what a server that runs cannot become."""
    check_engines(before, after)
    check_servers(after)


def check_servers(settings: Settings) -> None:
    """Whatever cannot be built is found out before anything is."""
    for model in models_of(settings):
        for config in model.backends:
            if config.kind != "engine":
                url = config.url or "http://127.0.0.1"  # of those that are yet to be found
                SERVERS[config.kind](model, dataclasses.replace(config, url=url), settings.gateway.health)


def check_engines(before: Settings, after: Settings) -> None:
    """Engines are started with the server: a change to them takes a new start."""
    running, wanted = _engines(before), _engines(after)
    for name, engines in wanted.items():
        if engines != running.pop(name, []):
            # Without a name it is the one model of the flat options.
            which = name or f"model {after.model!r}"
            raise ConfigError(f"The engines of {which} cannot be changed while the server runs; restart it.")
    for name, engines in running.items():
        if engines:
            raise ConfigError(f"{name} has engines, which cannot be stopped while the server runs.")


def _engines(settings: Settings) -> dict[str, list[BackendConfig]]:
    return {
        model.name: [config for config in model.backends if config.kind == "engine"]
        for model in models_of(settings)
    }
