"""Which replica gets a request: policies, each a small file, and one line each in the registry.

Pure Python over what the dispatcher counts and the servers report: no connections, no health, no
queue. It must not know a clock, a thread or a socket: every call is given `now`, in monotonic seconds.
"""

from penstock.gateway.balance.blocks import byte_digests, token_digests
from penstock.gateway.balance.policy import Load, Policy, PolicyOptions, Query, Replica
from penstock.gateway.balance.registry import POLICIES

__all__ = [
    "POLICIES",
    "Load",
    "Policy",
    "PolicyOptions",
    "Query",
    "Replica",
    "byte_digests",
    "token_digests",
]
