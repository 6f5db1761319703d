"""When a replica counts as out, for each way of watching one. All times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config.sections import HealthConfig

# A server without a heartbeat shows only by a probe that it hangs: asked after this long without a sign,
# and given this long to answer, it is out well within ten seconds.
SERVER_PROBE_EVERY = 3.0
SERVER_PROBE_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    silence: float | None = 8.0  # without a beat: longer than any step. None: it has no beat
    probe_every: float | None = 10.0  # since the last proof that it computes. None: it cannot be probed
    doubt_every: float = 1.0  # between probes of a replica that is in doubt or out
    probe_timeout: float = 5.0
    error_rate: float = 0.5  # of its answers, in the window
    error_window: float = 30.0
    error_requests: int = 10  # fewer answers in the window are no judgement
    hold: float = 5.0  # kept out at least so long from the second time on; doubles each time
    max_hold: float = 60.0
    calm: float = 120.0  # healthy for so long, earlier times out are forgotten


def engine_limits(config: HealthConfig) -> HealthLimits:
    """An engine of ours: each step is a beat, and a probe generates one token."""
    return HealthLimits(
        silence=config.silence,
        probe_every=config.probe_every,
        probe_timeout=config.probe_timeout,
        error_rate=config.error_rate,
        error_window=config.error_window,
        error_requests=config.error_requests,
    )


def server_limits(config: HealthConfig) -> HealthLimits:
    """Somebody's server: it shows itself by the bytes of its answers, or when asked for its health."""
    return HealthLimits(
        silence=None,
        probe_every=min(config.probe_every, SERVER_PROBE_EVERY),
        probe_timeout=min(config.probe_timeout, SERVER_PROBE_TIMEOUT),
        error_rate=config.error_rate,
        error_window=config.error_window,
        error_requests=config.error_requests,
    )


def unwatched_limits(config: HealthConfig) -> HealthLimits:
    """A provider whose every answer costs money: judged by the answers it gives anyway."""
    return HealthLimits(
        silence=None,
        probe_every=None,
        error_rate=config.error_rate,
        error_window=config.error_window,
        error_requests=config.error_requests,
    )
