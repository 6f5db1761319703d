"""Names that clients or other servers give, as values of a label: so many are told apart, then `other`."""

from __future__ import annotations

from typing import Final

OTHER: Final = "other"
LONGEST: Final = 128  # characters of a value


class CappedNames:
    """The first `limit` names are themselves, all others are `other`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        found = self._known.get(name)
        if found is not None:
            return found
        if len(self._known) >= self.limit:
            return OTHER
        found = self._known[name] = name[:LONGEST]
        return found

    def keep(self, names: list[str]) -> None:
        """These have a place of their own, whoever else comes."""
        for name in names:
            self._known.setdefault(name, name[:LONGEST])
