"""How much one tenant's failures say of a replica: its requests may be what fails. Pure."""

from __future__ import annotations

from typing import Final

WINDOW: Final = 30.0  # seconds
MOST: Final = 3  # failures of one tenant in that time that count, where others are served there too
MAX_TENANTS: Final = 64  # known of a replica at a time


class Blame:
    """Of one replica. Who is alone there is believed; of several, none can have it taken from the rest."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}  # when each tenant was last answered or failed, the latest last
        self._failed: dict[str, list[float]] = {}

    def answered(self, tenant: str, now: float) -> None:
        self._seen.pop(tenant, None)
        self._seen[tenant] = now
        if len(self._seen) > MAX_TENANTS:
            oldest = next(iter(self._seen))
            del self._seen[oldest]
            self._failed.pop(oldest, None)

    def counts(self, tenant: str, now: float) -> bool:
        """A request of this tenant failed: whether that counts against the replica."""
        self.answered(tenant, now)
        recent = [at for at in self._failed.get(tenant, ()) if now - at < WINDOW]
        self._failed[tenant] = [*recent, now][-MOST:]
        others = any(name != tenant and now - at < WINDOW for name, at in self._seen.items())
        return not others or len(recent) < MOST
