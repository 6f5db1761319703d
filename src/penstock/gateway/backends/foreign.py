"""What backends that speak another protocol than OpenAI's do alike when they ask their server."""

from __future__ import annotations

from typing import Final

from penstock.config.sections import BackendConfig
from penstock.errors import ConfigError
from penstock.gateway.backends import BackendError
from penstock.gateway.upstream import Origin, Timeouts, UpstreamError

# A server that cannot be reached is out for now; one that answers nonsense is a bad gateway.
_STATUSES: Final = {"unresolved": 503, "refused": 503, "timeout": 504}


def broken(error: UpstreamError) -> BackendError:
    """How a failed exchange with a server looks to the client."""
    return BackendError(str(error), status=_STATUSES.get(error.kind, 502))


def origin_of(config: BackendConfig) -> Origin:
    if config.url is None:
        raise ConfigError(f"The backend {config.name!r} has no url.")
    times = config.timeouts
    return Origin(
        config.url, timeouts=Timeouts(connect=times.connect, first_byte=times.first_byte, idle=times.idle)
    )
