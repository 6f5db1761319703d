"""Local engines that are kept running: started, watched, started again when they end or hang.

`ManagedEngine` owns the process; `AttachedEngine` is the same to the front processes beside its owner. Both
give the current client or none. They know nothing of HTTP, models' names, tenants or balancing.
"""

from penstock.gateway.engines.attached import AttachedEngine
from penstock.gateway.engines.fleet import socket_folder, socket_path, start_engines
from penstock.gateway.engines.managed import ManagedEngine
from penstock.gateway.engines.restarts import Death, RestartPolicy, Restarts

__all__ = [
    "AttachedEngine",
    "Death",
    "ManagedEngine",
    "RestartPolicy",
    "Restarts",
    "socket_folder",
    "socket_path",
    "start_engines",
]
