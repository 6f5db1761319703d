"""Which engines the configuration wants: for which model, from which files, with which settings."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock import hub
from penstock.config import BackendConfig, HealthConfig, Settings, engine_settings, models_of
from penstock.gateway.engines import (
    KeptEngine,
    RestartPolicy,
    attached_engine,
    managed_engine,
    socket_path,
)
from penstock.gateway.health import engine_limits
from penstock.text.template_file import read_template
from penstock.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """One engine to be run."""

    model: str  # by its name in the configuration
    name: str  # of the engine, among those of its model
    files: hub.ModelFiles
    template: str | None  # in place of the files' own
    settings: Settings
    config: BackendConfig

    @property
    def full_name(self) -> str:
        return f"{self.model}/{self.name}"


def named(settings: Settings, progress: hub.Progress) -> Settings:
    """The settings with a name for the one model of flat options, from its files if nobody gave it one."""
    if settings.gateway.models or settings.served_model_names:
        return settings
    files = hub.resolve(settings.model, progress=progress)
    return dataclasses.replace(settings, served_model_names=(files.name,))


def plan_engines(settings: Settings, progress: hub.Progress) -> list[EnginePlan]:
    """All engines of the configuration, their files fetched."""
    plans: list[EnginePlan] = []
    for model in models_of(settings):
        for backend in model.backends:
            if backend.kind != "engine":
                continue
            own = engine_settings(settings, backend)
            template = None if own.chat_template is None else read_template(own.chat_template)
            files = hub.resolve(own.model, progress=progress)
            for number in range(backend.replicas):
                name = f"{backend.name}-{number}"
                plans.append(EnginePlan(model.name, name, files, template, own, backend))
    return plans


def managed(plan: EnginePlan, health: HealthConfig, sockets: Path | None = None) -> KeptEngine:
    """The engine, to be started by this process. With a folder for `sockets` others can use it too."""
    return managed_engine(
        plan.name,
        plan.settings.engine_config(str(plan.files.path)),
        listen=None if sockets is None else socket_path(sockets, plan.full_name),
        limits=engine_limits(health),
        policy=RestartPolicy(pause=health.restart_backoff, max_pause=health.max_restart_backoff),
    )


def attached(plan: EnginePlan, health: HealthConfig, sockets: Path) -> KeptEngine:
    """The engine that another process keeps."""
    return attached_engine(plan.name, socket_path(sockets, plan.full_name), limits=engine_limits(health))


async def load_tokenizers(plans: Sequence[EnginePlan]) -> dict[str, Tokenizer]:
    """By the names of the models; engines of one model share one."""
    first = {plan.model: plan for plan in reversed(plans)}
    loaded = await asyncio.gather(
        *(
            asyncio.to_thread(Tokenizer.load, plan.files, chat_template=plan.template)
            for plan in first.values()
        )
    )
    return dict(zip(first, loaded, strict=True))
