"""The requests that ended last, for whoever looks at them one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from penstock.observe.record import RequestRecord


class Recent:
    """Those of clients that are known: who has no key could otherwise wipe out all that is remembered."""

    def __init__(self, size: int) -> None:
        self._records: deque[RequestRecord] = deque(maxlen=size)

    def resize(self, size: int) -> None:
        if size != self._records.maxlen:
            self._records = deque(self._records, maxlen=size)

    def finished(self, record: RequestRecord) -> None:
        if record.tenant and not record.inside:
            self._records.append(record)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[RequestRecord]:
        """The newest first."""
        return reversed(self._records)
