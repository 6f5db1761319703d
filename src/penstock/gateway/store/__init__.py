"""What outlives a process, in SQLite: keys, the ledger, and the limits that several workers share.

Knows files, SQL and who else is alive; must not know HTTP, prices or what a limit means.
Every failure is a `StoreError`, a sentence for whoever runs the server.
"""

from penstock.gateway.store.database import Database, StoreError, state_folder
from penstock.gateway.store.keys import KeyRecord, KeyTable
from penstock.gateway.store.standings import StandingFile
from penstock.gateway.store.usage import Tally, UsageRow, UsageTable

__all__ = [
    "Database",
    "KeyRecord",
    "KeyTable",
    "StandingFile",
    "StoreError",
    "Tally",
    "UsageRow",
    "UsageTable",
    "state_folder",
]
