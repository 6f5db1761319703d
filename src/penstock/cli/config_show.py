"""What a configuration means, for the eye and for scripts. Keys and headers are never shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import (
    BackendConfig,
    Examined,
    ModelConfig,
    PriceConfig,
    Settings,
    TenantConfig,
    models_of,
)

if TYPE_CHECKING:
    from penstock.cli.config_connect import Answer

_NONE = "-"


def as_json(examined: Examined, warnings: Sequence[str], answers: Sequence[Answer]) -> dict[str, Any]:
    settings = examined.settings
    report: dict[str, Any] = {
        "file": None if examined.file is None else str(examined.file),
        "ok": settings is not None,
        "problems": [dataclasses.asdict(problem) for problem in examined.problems],
        "warnings": list(warnings),
    }
    if settings is not None:
        report["models"] = [_without_secrets(model) for model in models_of(settings)]
        report["tenants"] = [dataclasses.asdict(tenant) for tenant in settings.gateway.tenants]
        for name in ("queue", "retry", "health"):
            report[name] = dataclasses.asdict(getattr(settings.gateway, name))
    if answers:
        report["answers"] = [{**dataclasses.asdict(answer), "good": answer.good} for answer in answers]
    return report


def _without_secrets(model: ModelConfig) -> dict[str, Any]:
    whole = dataclasses.asdict(model)
    for backend in whole["backends"]:
        backend["api_key"] = backend["api_key"] is not None
        backend["headers"] = sorted(backend["headers"] or ())
    return whole


def show(file: Path | None, settings: Settings, warnings: Sequence[str], answers: Sequence[Answer]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False)
    models, tenants = models_of(settings), settings.gateway.tenants
    backends = sum(len(model.backends) for model in models)
    counts = (
        f"{_count(len(models), 'model')}, {_count(backends, 'backend')}, {_count(len(tenants), 'tenant')}"
    )
    console.print(f"{file or 'No penstock.yaml'}: {counts}; listens on {settings.host}:{settings.port}")
    console.print("\nModels", style="bold")
    header: tuple[str, ...] = (
        "name",
        "also",
        "backend",
        "at",
        "what",
        "price in / cached / out",
        "fallbacks",
    )
    _print_table(console, [header, *(row for model in models for row in _model_rows(model))])
    if tenants:
        console.print("\nTenants", style="bold")
        header = (
            "name",
            "class",
            "weight",
            "models",
            "requests/min",
            "tokens/min",
            "concurrent",
            "USD/month",
        )
        _print_table(console, [header, *map(_tenant_row, tenants)])
    if answers:
        console.print("\nServers", style="bold")
        for answer in answers:
            mark, style = ("ok", "green") if answer.good else ("problem", "bold red")
            console.print(f"  {mark:<9}", style=style, end="")
            console.print(f"{answer.model}/{answer.backend}: {answer.sentence}")
    if warnings:
        console.print()
    for warning in warnings:
        console.print("warning  ", style="yellow", end="")
        console.print(warning)


def _model_rows(model: ModelConfig) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for index, backend in enumerate(model.backends):
        own = (model.name or "(as its files say)", ", ".join(model.aliases) or _NONE)
        rest = (_price(model.price), ", ".join(model.fallbacks) or _NONE)
        first = index == 0
        rows.append((*(own if first else ("", "")), *_backend(backend), *(rest if first else ("", ""))))
    return rows


def _backend(backend: BackendConfig) -> tuple[str, str, str]:
    if backend.kind == "engine":
        options = ", ".join(f"{name} {value}" for name, value in backend.engine_options.items())
        return "engine", f"{backend.engine or 'default'} x {backend.replicas}", options or _NONE
    where = backend.url or ""
    if backend.discover is not None:
        found = backend.discover
        where = "registered ones" if found.register else f"found by {found.dns or found.file}"
    marks = [name for name in ("vision", "priority") if getattr(backend, name)]
    marks += ["with key"] if backend.api_key else []
    marks += [f"as {backend.model}"] if backend.model else []
    return backend.kind, where, ", ".join(marks) or _NONE


def _price(price: PriceConfig) -> str:
    if price == PriceConfig():
        return _NONE
    cached = price.input if price.cached_input is None else price.cached_input
    shown = f"{price.input:g} / {cached:g} / {price.output:g}"
    return f"{shown} + {price.request:g} a request" if price.request else shown


def _tenant_row(tenant: TenantConfig) -> tuple[str, ...]:
    limits = (tenant.requests_per_minute, tenant.tokens_per_minute, tenant.concurrent)
    budget = _NONE if tenant.monthly_budget is None else f"{tenant.monthly_budget:g}"
    return (
        tenant.name,
        tenant.service_class,
        f"{tenant.weight:g}",
        ", ".join(tenant.models) or "all",
        *(_NONE if limit is None else f"{limit:,}" for limit in limits),
        budget,
    )


def _print_table(console: Any, rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for index, row in enumerate(rows):
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        console.print(f"  {line.rstrip()}", style="dim" if index == 0 else None)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
