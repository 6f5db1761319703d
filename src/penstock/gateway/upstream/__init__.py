"""Asking other servers over HTTP/1.1: a lean client with pooled connections.

Knows sockets, framing, timeouts and the ways in which a server fails. Must not know
what is asked or answered: models, JSON, events and tenants are the backends' business.
"""

from penstock.gateway.upstream.errors import FaultKind, UpstreamError
from penstock.gateway.upstream.head import header_lines
from penstock.gateway.upstream.origin import Origin, Timeouts
from penstock.gateway.upstream.response import Response

__all__ = ["FaultKind", "Origin", "Response", "Timeouts", "UpstreamError", "header_lines"]
