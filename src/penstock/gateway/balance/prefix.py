"""The replica that has most of the prompt in its prefix cache, unless it is overloaded.

What a replica has is what it was sent: an index of prefixes, bounded, the least recently used
forgotten first. A prefix that is asked for more than one replica can bear overflows to others,
which then have it too. Without any known prefix, and among equals: least tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from penstock.gateway.balance.least_tokens import LeastTokens
from penstock.gateway.balance.load import within_bound
from penstock.gateway.balance.policy import PolicyOptions, Query, Replica


class Prefix:
    def __init__(self, options: PolicyOptions) -> None:
        self._options = options
        self._least = LeastTokens(options)
        self._index = PrefixIndex(options.max_prefixes)

    def choose(self, query: Query, replicas: Sequence[Replica], now: float) -> Replica:
        allowed = within_bound(query, replicas, now, self._options)
        longest = self._index.longest(query.prefix, {replica.name for replica in allowed})
        holders = [replica for replica in allowed if replica.name in longest]
        return self._least.choose(query, holders or replicas, now)

    def placed(self, query: Query, replica: Replica, now: float) -> None:
        self._least.placed(query, replica, now)
        self._index.add(query.prefix, replica.name)

    def gone(self, name: str) -> None:
        self._least.gone(name)
        self._index.forget(name)


class PrefixIndex:
    """Which replicas were sent which prefix.

    A replica that joins gets a number of its own and loses it when it goes: to forget all that it had
    is to forget the number. Numbers of the gone are left in the entries until these are next written."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._holders: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()  # the least recently used first
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._holders)

    def longest(self, prefix: Sequence[bytes], names: set[str]) -> set[str]:
        """Those of `names` that have the longest known part of `prefix`; nobody if none has any."""
        best: set[str] = set()
        for digest in prefix:
            known = self._names
            holders = {known[number] for number in self._holders.get(digest, ()) if number in known}
            holders &= best or names
            if not holders:
                break
            best = holders
        return best

    def add(self, prefix: Sequence[bytes], name: str) -> None:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = self._next
            self._names[number] = name
            self._next += 1
        # From the end, so that the beginnings, which more prompts share, are forgotten last.
        for digest in reversed(prefix[: self._max_entries]):
            holders = self._holders.get(digest, ())
            if number not in holders:
                living = (other for other in holders if other in self._names)
                self._holders[digest] = (*living, number)
            self._holders.move_to_end(digest)
        while len(self._holders) > self._max_entries:
            self._holders.popitem(last=False)

    def forget(self, name: str) -> None:
        number = self._numbers.pop(name, None)
        if number is not None:
            del self._names[number]
