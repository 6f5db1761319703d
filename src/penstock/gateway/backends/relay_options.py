"""What a configuration may say about a relayed server beyond its preset, under the backend's `options`."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import msgspec

from penstock.config.sections import BackendConfig
from penstock.errors import ConfigError
from penstock.gateway.backends.presets import PATHS, PRESETS, Preset, RunningUsage

DEFAULT_PREFIX = "/v1"
_PATH = re.compile(r"/[\x21-\x7e]*")


class RelayOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prefix: str = DEFAULT_PREFIX  # what stands before the endpoints' own paths
    health: str | None = None  # the path that answers 200 when requests should be sent
    operations: list[str] | None = None  # what is there, by the names of the API's operations
    stream_usage: bool | None = None  # whether stream_options.include_usage is obeyed
    running_usage: RunningUsage | None = None  # with continuous_usage_stats: whose tokens a chunk counts
    stored: bool | None = None  # whether clients may name responses and the like that it keeps


def read_options(config: BackendConfig) -> RelayOptions:
    try:
        options = msgspec.convert(dict(config.options or {}), RelayOptions)
    except msgspec.ValidationError as error:
        known = ", ".join(RelayOptions.__struct_fields__)
        raise ConfigError(
            f"The options of the backend {config.name!r} are wrong: {error}. A {config.kind} knows {known}."
        ) from None
    for path in (options.prefix, options.health):
        if path and not _PATH.fullmatch(path):
            raise ConfigError(
                f"{path!r} in the options of the backend {config.name!r} must begin with a slash, and be "
                "ASCII without spaces."
            )
    wrong = sorted(set(options.operations or ()) - set(PATHS))
    if wrong:
        raise ConfigError(
            f"The options of the backend {config.name!r} name the operation {wrong[0]!r}; "
            f"there are {', '.join(PATHS)}."
        )
    return options


def preset_of(config: BackendConfig, options: RelayOptions) -> Preset:
    """The row of this kind of server, as changed by its options."""
    changes: dict[str, Any] = {}
    if options.health is not None:
        changes["health"] = options.health.encode()
    if options.operations is not None:
        changes["operations"] = frozenset(options.operations)
    for name in ("stream_usage", "running_usage", "stored"):
        value = getattr(options, name)
        if value is not None:
            changes[name] = value
    return dataclasses.replace(PRESETS[config.kind], **changes)


def paths_of(options: RelayOptions) -> dict[str, bytes]:
    """Where each operation is. A prefix in place of /v1 is for providers that have another."""
    prefix = options.prefix.rstrip("/").encode()
    return {name: prefix + path.removeprefix(DEFAULT_PREFIX.encode()) for name, path in PATHS.items()}
