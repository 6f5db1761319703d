"""What backends that speak another protocol than OpenAI's do alike with their server."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.config.sections import BackendConfig
from penstock.errors import ConfigError
from penstock.gateway.upstream import Origin, Response, Timeouts, UpstreamError

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
MAX_ERROR_BYTES: Final = 64 * 1024
LAST_BYTES_SECONDS: Final = 1.0  # for the end of a stream's connection, after the end of the stream


def origin_of(config: BackendConfig, version: str) -> Origin:
    """The server. `version` begins all its paths, and may be written at the end of its url or not."""
    if config.url is None:
        raise ConfigError(f"The backend {config.name!r} needs a url; write http://host:port.")
    times = config.timeouts
    return Origin(
        config.url.rstrip("/").removesuffix(version),
        timeouts=Timeouts(connect=times.connect, first_byte=times.first_byte, idle=times.idle),
    )


async def last_bytes(response: Response) -> None:
    """Let the server close its stream properly, so that the connection can be used again."""
    try:
        async with asyncio.timeout(LAST_BYTES_SECONDS):
            while await response.chunk():
                pass
    except (TimeoutError, UpstreamError):
        pass  # the client has its answer
