"""A worker of its own: asks for one tenant's requests as fast as it can. Run by the tests of sharing.

Arguments: the folder, the tenant's limits as JSON, how many requests to ask for, and what to do with those
that pass: keep, settle, or crash in the end. Begins at a line of input, prints what happened as JSON, and
ends at another line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from penstock.config import TenantConfig
from penstock.gateway.accounts import Accounts, Caller, Price
from penstock.protocol.errors import HTTPError
from penstock.protocol.shapes import UsageCount

PRICE = Price(input=10, output=10)


def main(folder: str, limits: str, asked: str, then: str) -> None:
    tenant = TenantConfig(name="acme", **json.loads(limits))
    accounts = Accounts.open(Path(folder), workers=2)
    holds = []
    refused: Counter[str] = Counter()
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(asked)):
        try:
            hold = accounts.reserve(Caller("acme"), tenant, "m", PRICE, 10, 90, time.monotonic())
        except HTTPError as error:
            refused[error.code] += 1
            continue
        holds.append(hold)
        if then == "settle" and len(holds) > 2:
            accounts.settle(holds.pop(0), UsageCount(10, 40), "ok", time.monotonic())
        if accounts.due(time.monotonic()):
            accounts.flush()
    print(json.dumps({"passed": int(asked) - refused.total(), **refused}), flush=True)
    sys.stdin.readline()
    if then == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    for hold in holds:
        accounts.settle(hold, UsageCount(10, 40), "ok", time.monotonic())
    assert accounts.close(time.monotonic())


if __name__ == "__main__":
    main(*sys.argv[1:])
