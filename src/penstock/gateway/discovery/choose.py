"""The source that a backend's configuration asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.gateway.discovery.dns import DnsSource
from penstock.gateway.discovery.file import FileSource
from penstock.gateway.discovery.shared import RegisteredSource, SharedRegistry
from penstock.gateway.discovery.source import Source

if TYPE_CHECKING:
    from penstock.config.sections import DiscoverConfig


def open_source(config: DiscoverConfig, registry: SharedRegistry, group: str) -> Source:
    """`group`: what servers of this backend register for."""
    if config.dns is not None:
        return DnsSource(config.dns, config.every)
    if config.file is not None:
        return FileSource(Path(config.file).expanduser(), config.every)
    return RegisteredSource(registry, group)
