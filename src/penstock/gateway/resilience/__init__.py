"""What keeps one failure from becoming many: how often, and after which pause, a request is tried again;
whose failures are held against a replica.

Pure: it decides, `ask` and `dispatch` act. Knows nothing of backends or HTTP.
"""

from penstock.gateway.resilience.blame import Blame
from penstock.gateway.resilience.retry import RetryBudget, pause

__all__ = ["Blame", "RetryBudget", "pause"]
