"""How a standing changes when a request comes and when it ends, wherever the standing is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.gateway.accounts.calendar import Calendar
from penstock.gateway.accounts.hold import Hold, Want
from penstock.gateway.accounts.limits import (
    SECOND,
    Limits,
    Refusal,
    Standing,
    correct_tokens,
    drain,
    hold_cost,
    lasted,
    over_budget,
    over_tokens,
    refusal,
    release,
    take,
)

Spent = Callable[[str, str], int]  # picodollars of a tenant's month, from the ledger


class Keeper(Protocol):
    """Where standings are kept: in this process, or in a file that workers share."""

    def reserve(self, hold: Hold) -> Refusal | None:
        """Admit a request, or say why not."""

    def reserve_again(self, hold: Hold, wanted: Want, at: int) -> Refusal | None:
        """Hold something else for a request under way, or say why not."""

    def settle(self, hold: Hold, limits: Limits, tokens: int, cost: int, at: int) -> None:
        """It is over, and took so many tokens and picodollars; `limits` are its tenant's present ones."""

    def tick(self, at: int) -> None:
        """Do what was put off."""

    def close(self) -> None:
        """Let go of everything."""


def admit(standing: Standing, hold: Hold, worker: str, calendar: Calendar, spent: Spent) -> Refusal | None:
    limits = hold.limits
    drain(standing, limits, hold.at)
    today = calendar.today()
    _turn_page(standing, limits, hold.tenant, today[:7], spent)
    hold.debts = (standing.requests, standing.tokens)
    why = refusal(standing, limits, hold.tokens, hold.cost, calendar.month_left)
    if why is not None:
        return why
    take(standing, limits, worker, hold.tokens, hold.cost)
    hold.day = today
    hold.debts = (standing.requests, standing.tokens)
    return None


def _turn_page(standing: Standing, limits: Limits, tenant: str, month: str, spent: Spent) -> None:
    """A new month, or a budget where there was none, begins with what the ledger says."""
    if limits.budget is None:
        standing.month = ""
    elif standing.month != month:
        before = spent(tenant, month)
        if standing.month:
            for share in standing.shares.values():
                share.held = 0  # those under way are the last month's expense
        standing.month = month
        standing.spent = before


def readmit(
    standing: Standing, hold: Hold, worker: str, wanted: Want, calendar: Calendar, at: int
) -> Refusal | None:
    """Hold what is wanted now in place of what was wanted before. A refusal leaves it as it was."""
    limits, more, longer = hold.limits, wanted.cost - hold.cost, wanted.tokens - hold.tokens
    drain(standing, limits, at)
    counted = limits.budget is not None and standing.month in ("", hold.day[:7])
    if counted and standing.month:
        why = over_budget(standing, limits, wanted.cost, more, calendar.month_left)
        if why is not None:
            return why
    why = over_tokens(standing, limits, wanted.tokens, longer)
    if why is not None and longer > 0:
        return why
    if counted:
        hold_cost(standing, worker, more)
    correct_tokens(standing, limits, longer)
    hold.take(wanted)
    return None


def end(standing: Standing, hold: Hold, worker: str, limits: Limits, tokens: int, cost: int, at: int) -> None:
    drain(standing, limits, at)
    if hold.limits.tokens is not None:
        correct_tokens(standing, limits, tokens - hold.tokens)
    month = hold.day[:7]
    if standing.month == month:
        standing.spent += cost
    if not hold.limits.none:  # otherwise it came before there were limits, and has no share to release
        held = hold.cost if hold.limits.budget is not None and standing.month in ("", month) else 0
        release(standing, worker, 1, held)
        lasted(standing, at - hold.at)


def microseconds(now: float) -> int:
    return int(now * SECOND)
