"""One view of what is served, whether the file has a `models` section or flat options name one model."""

from __future__ import annotations

import dataclasses

from penstock.config.sections import BackendConfig, GatewayConfig, ModelConfig
from penstock.config.settings import Settings


def models_of(settings: Settings) -> tuple[ModelConfig, ...]:
    """The models to serve. Without a `models` section, the flat options mean one model with one engine.

    The name of that one is empty where nobody gave it one: then the model's files say it.
    """
    if settings.gateway.models:
        return settings.gateway.models
    name, *aliases = settings.served_model_names or ("",)
    engine = BackendConfig(name="engine", kind="engine", engine=settings.model)
    return (ModelConfig(name=name, aliases=tuple(aliases), backends=(engine,)),)


def engine_settings(settings: Settings, backend: BackendConfig) -> Settings:
    """The settings of one managed engine: the flat ones, where the backend does not say otherwise."""
    own = {"model": backend.engine or settings.model, **backend.engine_options}
    return dataclasses.replace(settings, gateway=GatewayConfig(), **own)
