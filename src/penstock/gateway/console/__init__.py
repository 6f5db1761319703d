"""The console's back: what one process knows, what all of them know together, and who may see it.

Reads the gateway and the records of finished requests; changes nothing, and must not know how a request is
answered. The page itself lies in `observe/console`.
"""

from penstock.gateway.console.console import Console

__all__ = ["Console"]
