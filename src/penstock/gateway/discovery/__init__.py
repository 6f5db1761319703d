"""Where a backend's servers are, as it changes: a DNS name, a watched file, or servers that register.

Each source gives whole sets of URLs, the first as soon as it knows one, and keeps the last good one through
failures. It knows nothing of replicas, health or balancing: who comes and goes is found out elsewhere.
"""

from penstock.gateway.discovery.choose import open_source
from penstock.gateway.discovery.dns import DnsSource
from penstock.gateway.discovery.file import FileSource
from penstock.gateway.discovery.registry import MAX_TTL, MIN_TTL, Registry
from penstock.gateway.discovery.shared import SharedRegistry
from penstock.gateway.discovery.source import Addresses, Source

__all__ = [
    "MAX_TTL",
    "MIN_TTL",
    "Addresses",
    "DnsSource",
    "FileSource",
    "Registry",
    "SharedRegistry",
    "Source",
    "open_source",
]
