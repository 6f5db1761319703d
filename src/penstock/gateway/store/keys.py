"""The table of API keys: never the keys themselves, only their hashes."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.gateway.store.database import Database

_COLUMNS = "id, name, tenant, digest, admin, created, expires, revoked"


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is kept of a key. Times are Unix seconds."""

    id: str
    name: str
    tenant: str
    digest: bytes = field(repr=False)  # SHA-256 of the whole key
    admin: bool
    created: int
    expires: int | None = None
    revoked: int | None = None

    def state(self, wall: float) -> str:
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and wall >= self.expires else "active"


class KeyTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def version(self) -> int:
        """Another number whenever keys have changed; cheap enough to be asked every second.

        Raises StoreError too when the file is no longer the one that others would change.
        """
        self._database.check_in_place()
        with self._database.read() as connection:
            (number,) = connection.execute("SELECT number FROM changes WHERE what = 'keys'").fetchone()
        return int(number)

    def all(self) -> list[KeyRecord]:
        """In order of creation."""
        with self._database.read() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM keys ORDER BY created, id").fetchall()
        return [
            KeyRecord(id, name, tenant, digest, bool(admin), created, expires, revoked)
            for id, name, tenant, digest, admin, created, expires, revoked in rows
        ]

    def add(self, key: KeyRecord) -> None:
        row = (key.id, key.name, key.tenant, key.digest, key.admin, key.created, key.expires, key.revoked)
        with self._database.write() as connection:
            connection.execute(f"INSERT INTO keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            connection.execute("UPDATE changes SET number = number + 1 WHERE what = 'keys'")

    def revoke(self, id: str, wall: int) -> bool:
        """Whether there was such a key. One that was revoked before keeps its date."""
        with self._database.write() as connection:
            known = connection.execute(
                "UPDATE keys SET revoked = coalesce(revoked, ?) WHERE id = ?", (wall, id)
            ).rowcount
            connection.execute("UPDATE changes SET number = number + 1 WHERE what = 'keys'")
        return known == 1
