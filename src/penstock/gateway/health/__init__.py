"""Whether a replica should get requests: alive, ready and healthy are three things.

Pure: events and the time go in, a judgement comes out; the live gateway and the simulations use the same
object. It knows nothing of sockets, processes, HTTP or who does the probing.
"""

from penstock.gateway.health.health import Health, State
from penstock.gateway.health.limits import HealthLimits, engine_limits, server_limits, unwatched_limits

__all__ = ["Health", "HealthLimits", "State", "engine_limits", "server_limits", "unwatched_limits"]
