"""What backends of all kinds do alike with their server."""

from __future__ import annotations

from typing import Final

from penstock.config.sections import BackendConfig
from penstock.errors import ConfigError
from penstock.gateway.upstream import Origin, Timeouts

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024  # thousands of vectors are large
MAX_ERROR_BYTES: Final = 64 * 1024


def origin_of(config: BackendConfig, version: str, default: str | None = None) -> Origin:
    """The server. `version` begins all its paths, and may be written at the end of its url or not."""
    times = config.timeouts
    return Origin(
        base_url(config, version, default),
        timeouts=Timeouts(connect=times.connect, first_byte=times.first_byte, idle=times.idle),
    )


def base_url(config: BackendConfig, version: str, default: str | None = None) -> str:
    """Where the server is; `default`: where everybody finds it."""
    url = config.url or default
    if url is None:
        raise ConfigError(f"The backend {config.name!r} needs a url; write http://host:port.")
    return url.rstrip("/").removesuffix(version)
