"""How many places at the replicas each tenant has, so that one alone cannot have them all.

Turns are taken fairly, but a place once taken is kept for as long as its answer takes. So while others of
its class are about, nobody fills the last quarter: whoever comes next finds room at once, however many
long answers another one has under way. Pure.
"""

from __future__ import annotations

from typing import Final

from penstock.gateway.queue.ticket import ServiceClass

KEPT_SHARE: Final = 0.25  # of all places, for others than the one who has most
ABOUT_SECONDS: Final = 60.0  # a tenant is about for so long after its last request


class Places:
    def __init__(self) -> None:
        self._held: dict[tuple[ServiceClass, str], int] = {}
        self._about: dict[tuple[ServiceClass, str], float] = {}  # when each last asked, the latest last

    def asked(self, service_class: ServiceClass, tenant: str, now: float) -> None:
        self._about.pop((service_class, tenant), None)
        self._about[service_class, tenant] = now
        while self._about[oldest := next(iter(self._about))] < now - ABOUT_SECONDS:
            del self._about[oldest]

    def taken(self, service_class: ServiceClass, tenant: str, places: int) -> None:
        key = (service_class, tenant)
        self._held[key] = self._held.get(key, 0) + places

    def given_back(self, service_class: ServiceClass, tenant: str, places: int) -> None:
        key = (service_class, tenant)
        left = self._held[key] - places
        if left:
            self._held[key] = left
        else:
            del self._held[key]

    def may_take(self, service_class: ServiceClass, tenant: str, places: float) -> bool:
        """Whether a tenant may have one more of so many places, all replicas' together."""
        held = self._held.get((service_class, tenant), 0)
        if held < places * (1 - KEPT_SHARE) or not held:
            return True
        return not any(name == service_class and other != tenant for name, other in self._about)
