"""The policies by the names that configurations use."""

from __future__ import annotations

from collections.abc import Callable

from penstock.gateway.balance.least_tokens import LeastTokens
from penstock.gateway.balance.policy import Policy, PolicyOptions
from penstock.gateway.balance.prefix import Prefix
from penstock.gateway.balance.round_robin import RoundRobin
from penstock.gateway.balance.session import Session
from penstock.gateway.balance.two_choices import TwoChoices

POLICIES: dict[str, Callable[[PolicyOptions], Policy]] = {
    "prefix": Prefix,
    "least_tokens": LeastTokens,
    "two_choices": TwoChoices,
    "round_robin": RoundRobin,
    "session": Session,
}
