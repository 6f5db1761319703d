"""Local engines that are kept running: started, watched, started again when they end or hang.

A `KeptEngine` gives the current client or none: a managed one owns its process, an attached one is the same
to the front processes beside its owner. It knows nothing of HTTP, models' names, tenants or balancing.
"""

from penstock.gateway.engines.attached import attached_engine
from penstock.gateway.engines.fleet import socket_folder, socket_path, start_engines
from penstock.gateway.engines.kept import KeptEngine
from penstock.gateway.engines.managed import managed_engine
from penstock.gateway.engines.restarts import Death, RestartPolicy, Restarts

__all__ = [
    "Death",
    "KeptEngine",
    "RestartPolicy",
    "Restarts",
    "attached_engine",
    "managed_engine",
    "socket_folder",
    "socket_path",
    "start_engines",
]
