"""Who calls, what they may use, and what they have used: keys, limits, budgets and the ledger.

What decides (`limits`, `price`) is pure; keys and totals are kept by `store`, limits in memory or, for
several workers, in a file they share. Must not know routes, backends, queues or how an answer is sent.
"""

from penstock.gateway.accounts.accounts import Accounts
from penstock.gateway.accounts.hold import Hold
from penstock.gateway.accounts.keys import Caller, KeyRing
from penstock.gateway.accounts.ledger import Ledger
from penstock.gateway.accounts.price import Price

__all__ = ["Accounts", "Caller", "Hold", "KeyRing", "Ledger", "Price"]
