"""API keys: who may call. Keys are kept and compared as hashes, in the same time whatever was sent."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic, time
from typing import Final

from penstock.gateway.store import KeyRecord, KeyTable, StoreError
from penstock.protocol.errors import HTTPError

logger = logging.getLogger("penstock.gateway")

PREFIX: Final = "sk-penstock-"
DEFAULT_TENANT: Final = "default"
LOOK_SECONDS: Final = 1.0  # how old the knowledge of keys may be before the store is asked
MOST_BYTES: Final = 512  # longer keys are not ours, and not hashed
SECRET_BYTES: Final = 32
_KEY: Final = re.compile(rb"sk-penstock-([0-9a-f]{12})-[a-z2-7]{52}")
_NOBODY: Final = hashlib.sha256(
    secrets.token_bytes(SECRET_BYTES)
).digest()  # what unknown ids are compared with


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. `salt` keeps what one tenant has in prefix caches from all others."""

    tenant: str
    key_id: str = ""
    salt: str = ""
    admin: bool = False
    inside: bool = False  # it is the server itself: no key makes anybody that


ANYBODY: Final = Caller(DEFAULT_TENANT)


def mint(
    name: str, tenant: str, *, admin: bool = False, created: int, expires: int | None = None
) -> tuple[str, KeyRecord]:
    """A new key, to be shown once, and what is kept of it."""
    id = secrets.token_hex(6)
    secret = base64.b32encode(secrets.token_bytes(SECRET_BYTES)).decode().rstrip("=").lower()
    key = f"{PREFIX}{id}-{secret}"
    return key, KeyRecord(id, name, tenant, _digest(key.encode()), admin, created, expires)


class KeyRing:
    """The keys of the settings (`plain`) and of the store, which may change while the server runs.

    Without any key everybody may call; the server then listens on loopback only. A store that ever had a
    key stays locked, even when all of them are revoked, or the store itself is lost: `locked` says that it
    had one before this process began.
    """

    def __init__(
        self,
        plain: Iterable[str] = (),
        table: KeyTable | None = None,
        *,
        locked: bool = False,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time,
    ) -> None:
        self.configure(plain)
        self._table = table
        self._clock = clock
        self._wall = wall
        self._version = -1
        self._looked = clock()
        self._failing = False
        self._had_keys = locked
        self._stored: dict[bytes, tuple[KeyRecord, Caller]] = {}  # by public id
        if table is not None:
            self._read(table)

    def configure(self, plain: Iterable[str]) -> None:
        """From now on these are the keys of the settings."""
        keys = [key.encode() for key in plain]
        # Each is of the default tenant, and has its prefixes to itself.
        self._plain = [(_digest(key), Caller(DEFAULT_TENANT, "", _digest(key).hex())) for key in keys]
        self._most_bytes = max([MOST_BYTES, *map(len, keys)])

    @property
    def locked(self) -> bool:
        """Whether callers need a key."""
        return self.locks_with(self._plain)

    def locks_with(self, plain: Collection[object]) -> bool:
        """Whether they would, were these the keys of the settings."""
        self._look()
        return bool(plain) or self._had_keys

    @property
    def had_keys(self) -> bool:
        """Whether the store has ever had a key, as far as this server knows."""
        self._look()
        return self._had_keys

    def check(self, headers: Mapping[bytes, bytes]) -> Caller:
        """Who calls, by `Authorization: Bearer` or `x-api-key`; or raise the 401 of all who may not."""
        if not self.locked:
            return ANYBODY
        scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        given = [bearer.strip()] if scheme.lower() == b"bearer" else []
        if b"x-api-key" in headers:
            given.append(headers[b"x-api-key"].strip())
        for key in given:
            if (caller := self._known(key)) is not None:
                return caller
        message = "The API key is wrong." if any(given) else "This server needs an API key."
        raise HTTPError(
            401,
            f"{message} Send it as 'Authorization: Bearer KEY'.",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _known(self, key: bytes) -> Caller | None:
        if not 0 < len(key) <= self._most_bytes:
            return None
        digest = _digest(key)
        caller: Caller | None = None
        # All are compared: stopping at the first match would show by its time which key it was.
        for known, owner in self._plain:
            if hmac.compare_digest(digest, known):
                caller = owner
        match = _KEY.fullmatch(key)
        found = self._stored.get(match[1]) if match else None
        # An unknown id costs the same comparison as a known one.
        same = hmac.compare_digest(digest, found[0].digest if found else _NOBODY)
        if found and same and found[0].state(self._wall()) == "active":
            return found[1]
        return caller

    def _look(self) -> None:
        """Notice what the command line or another process has changed, within `LOOK_SECONDS`."""
        now = self._clock()
        if self._table is None or now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        try:
            if self._table.version() != self._version:
                self._read(self._table)
        except StoreError as error:
            if not self._failing:
                logger.error("Changes of keys are not seen for now. %s", error)
            self._failing = True
        else:
            self._failing = False

    def _read(self, table: KeyTable) -> None:
        # The version first: a change in between is then read twice rather than missed.
        self._version = table.version()
        self._stored = {
            record.id.encode(): (
                record,
                Caller(record.tenant, record.id, f"tenant-{record.tenant}", record.admin),
            )
            for record in table.all()
        }
        self._had_keys = self._had_keys or bool(self._stored)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
