"""Days as the router's commands take them; all of them are in UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from penstock.errors import ConfigError


def read_day(flag: str, text: str) -> str:
    try:
        if len(text) != len("2026-01-31"):
            raise ValueError
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ConfigError(f"{flag} must be a day such as 2026-01-31, got {text[:64]!r}.") from None


def begins(day: str) -> float:
    """Unix seconds."""
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


def ends(day: str) -> float:
    """Unix seconds: when the next one begins."""
    return begins(day) + timedelta(days=1).total_seconds()
