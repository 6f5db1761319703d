"""Amounts of money as the router's commands show them. All of them are whole picodollars."""

from __future__ import annotations

from penstock.gateway.accounts.price import DOLLAR, shown


def dollars(picodollars: int) -> str:
    """For people: to the millionth of a dollar, with a sign where it is a loss."""
    millionths = (abs(picodollars) + 500_000) // 1_000_000
    whole, rest = divmod(millionths, 1_000_000)
    digits = f"{rest:06d}".rstrip("0")
    return f"{'-' if picodollars < 0 and millionths else ''}${whole:,}.{digits:0<2}"


def exact(picodollars: int) -> str:
    """For programs: all the digits, which a float would lose."""
    sign = "-" if picodollars < 0 else ""
    return sign + shown(abs(picodollars)).replace("$", "").replace(",", "")


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


__all__ = ["DOLLAR", "dollars", "exact", "percent"]
