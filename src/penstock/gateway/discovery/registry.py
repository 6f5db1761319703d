"""Servers that announce themselves, and are forgotten unless they do so again. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config.values import parse_url
from penstock.errors import InvalidRequestError, QueueFullError
from penstock.gateway.discovery.source import Addresses

MIN_TTL, MAX_TTL = 1.0, 3600.0  # seconds
MAX_SERVERS = 1000  # in one group


class Registry:
    """Which servers have registered for each group (a backend that discovers by `register`), and until when.

    `now` is in monotonic seconds.
    """

    def __init__(self, expiries: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self._expiries = {group: dict(servers) for group, servers in (expiries or {}).items()}

    @property
    def expiries(self) -> Mapping[str, Mapping[str, float]]:
        """When each server of each group is forgotten."""
        return self._expiries

    def register(self, group: str, url: str, ttl: float, now: float) -> bool:
        """Know a server for the next `ttl` seconds; whether it is new. The same again renews it."""
        if not MIN_TTL <= ttl <= MAX_TTL:
            raise InvalidRequestError(
                f"ttl must be {MIN_TTL:g} to {MAX_TTL:g} seconds, got {ttl:g}.", param="ttl"
            )
        url = _checked(url)
        self.expire(now)
        servers = self._expiries.setdefault(group, {})
        new = url not in servers
        if new and len(servers) >= MAX_SERVERS:
            raise QueueFullError(f"{MAX_SERVERS} servers are registered already; no more are taken.")
        servers[url] = now + ttl
        return new

    def deregister(self, group: str, url: str, now: float) -> bool:
        """Forget a server at once; whether it was known."""
        self.expire(now)
        return self._expiries.get(group, {}).pop(_checked(url), None) is not None

    def addresses(self, group: str, now: float) -> Addresses:
        return frozenset(url for url, expiry in self._expiries.get(group, {}).items() if expiry > now)

    def expire(self, now: float) -> None:
        for group, servers in list(self._expiries.items()):
            for url in [url for url, expiry in servers.items() if expiry <= now]:
                del servers[url]
            if not servers:
                del self._expiries[group]


def _checked(url: object) -> str:
    try:
        return parse_url(url)
    except ValueError as error:
        raise InvalidRequestError(f"url {str(error) or 'must be an address'}.", param="url") from None
