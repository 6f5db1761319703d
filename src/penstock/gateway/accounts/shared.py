"""Standings that several workers share, exactly: each change is one transaction on a file.

While the file cannot be used, a worker goes on by itself with its part of the limits, and tells the others
what it owes them as soon as it can. A worker that died has its part taken back by whoever misses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from penstock.gateway.accounts.calendar import Calendar
from penstock.gateway.accounts.hold import Hold, Want
from penstock.gateway.accounts.keeping import Spent, admit, end, readmit
from penstock.gateway.accounts.limits import (
    SECOND,
    Limits,
    Refusal,
    Standing,
    correct_tokens,
    release,
)
from penstock.gateway.accounts.memory import MemoryKeeper
from penstock.gateway.store import StandingFile, StoreError

logger = logging.getLogger("penstock.gateway")

REST: Final = 1 * SECOND  # after a failure the file is left alone for this long
FUNERAL: Final = SECOND // 10  # at most so often is it asked who is dead

R = TypeVar("R")
_encode = msgspec.json.Encoder().encode  # JSON: its integers have no end
_decode = msgspec.json.Decoder(Standing).decode


@dataclass(slots=True)
class Owed:
    """What a tenant's shared standing has not been told yet."""

    limits: Limits
    running: int = 0  # requests that are over
    held: int = 0  # picodollars no longer held
    tokens: int = 0  # more, or fewer, than was reserved
    spent: int = 0  # picodollars


class SharedKeeper:
    """`open_file` is called until it succeeds: a server that cannot share limits yet starts all the same."""

    def __init__(
        self, open_file: Callable[[], StandingFile], calendar: Calendar, spent: Spent, workers: int
    ) -> None:
        self._open_file = open_file
        self._file: StandingFile | None = None
        self._calendar = calendar
        self._spent = spent
        self._workers = max(1, workers)
        self._alone = MemoryKeeper(calendar, lambda tenant, month: 0)
        # Picodollars spent and held, when last seen, by tenant and month.
        self._committed: dict[tuple[str, str], int] = {}
        self._owed: dict[tuple[str, str], Owed] = {}  # by tenant and month
        self._rest_until = 0
        self._failing = False
        self._buried = 0
        try:
            self._opened()
        except StoreError as error:
            self._complain(error)

    def reserve(self, hold: Hold) -> Refusal | None:
        if hold.at >= self._rest_until:
            try:
                return self._change(hold.tenant, lambda standing, file: self._admit(standing, hold, file))
            except StoreError as error:
                self._rest(hold.at, error)
        hold.alone = True
        hold.limits = self._own_part(hold.tenant, hold.limits)
        why = self._alone.reserve(hold)
        # What is too large for a part may not be for the whole.
        return why if why is None or why.wait is not None else Refusal(why.code, why.message, REST)

    def reserve_again(self, hold: Hold, wanted: Want, at: int) -> Refusal | None:
        if hold.alone:
            return self._alone.reserve_again(hold, wanted, at)
        if at >= self._rest_until:
            try:
                return self._change(
                    hold.tenant,
                    lambda standing, file: readmit(
                        standing, hold, file.worker.id, wanted, self._calendar, at
                    ),
                )
            except StoreError as error:
                self._rest(at, error)
        return None  # what was held before stays held; what is used is billed all the same

    def settle(self, hold: Hold, limits: Limits, tokens: int, cost: int, at: int) -> None:
        if hold.alone:
            self._alone.settle(hold, hold.limits, tokens, cost, at)
            self._owe(hold, limits, 0, 0, tokens, cost)
            return
        if at >= self._rest_until:
            try:
                self._change(
                    hold.tenant,
                    lambda standing, file: end(standing, hold, file.worker.id, limits, tokens, cost, at),
                )
                return
            except StoreError as error:
                self._rest(at, error)
        held = hold.cost if hold.limits.budget is not None else 0
        more = 0 if hold.limits.tokens is None else tokens - hold.tokens
        self._owe(hold, limits, 0 if hold.limits.none else 1, held, more, cost)

    def tick(self, at: int) -> None:
        if self._owed and at >= self._rest_until:
            try:
                for tenant in {tenant for tenant, _ in self._owed}:
                    self._change(tenant, lambda standing, file: None)
            except StoreError as error:
                self._rest(at, error)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _opened(self) -> StandingFile:
        if self._file is None:
            self._file = self._open_file()
        return self._file

    def _admit(self, standing: Standing, hold: Hold, file: StandingFile) -> Refusal | None:
        me = file.worker.id
        why = admit(standing, hold, me, self._calendar, self._spent)
        if why is not None and why.may_be_stale and hold.at - self._buried >= FUNERAL:
            self._buried = hold.at
            dead = [id for id in standing.shares if id != me and not file.worker.is_alive(id)]
            for id in dead:
                del standing.shares[id]
            if dead:
                why = admit(standing, hold, me, self._calendar, self._spent)
        return why

    def _change(self, tenant: str, act: Callable[[Standing, StandingFile], R]) -> R:
        file = self._opened()
        owed = [key for key in self._owed if key[0] == tenant] if self._owed else ()

        def change(state: bytes | None) -> tuple[bytes | None, tuple[Standing, R]]:
            standing = Standing() if state is None else _decode(state)
            for key in owed:
                self._pay(standing, file.worker.id, key[1], self._owed[key])
            result = act(standing, file)
            # A refusal changes nothing that anybody will miss.
            unchanged = not owed and isinstance(result, Refusal)
            return None if unchanged else _encode(standing), (standing, result)

        standing, result = file.change(tenant, change)
        if standing.month:
            self._committed[tenant, standing.month] = standing.spent + standing.held
        for key in owed:
            del self._owed[key]
            self._alone.forget_spending(tenant)
        if self._failing:
            self._failing = False
            logger.info("Limits are shared between the workers again.")
        return result

    def _pay(self, standing: Standing, me: str, month: str, owed: Owed) -> None:
        correct_tokens(standing, owed.limits, owed.tokens)
        release(standing, me, owed.running, owed.held if standing.month in ("", month) else 0)
        # A standing that is not about this month yet will begin with what the ledger says of it.
        if standing.month == month:
            standing.spent += owed.spent

    def _owe(self, hold: Hold, limits: Limits, running: int, held: int, tokens: int, spent: int) -> None:
        owed = self._owed.setdefault((hold.tenant, hold.day[:7]), Owed(limits))
        owed.limits = limits
        owed.running += running
        owed.held += held
        owed.tokens += tokens
        owed.spent += spent

    def _own_part(self, tenant: str, limits: Limits) -> Limits:
        """One of as many parts as there are workers, of the budget only of what is left of it."""
        left = limits.budget
        if left is not None:
            account = (tenant, self._calendar.today()[:7])
            if account not in self._committed:
                self._committed[account] = self._spent(*account)
            left = max(0, left - self._committed[account])
        return Limits(limits.requests, limits.tokens, limits.concurrent, left).part(self._workers)

    def _rest(self, at: int, error: StoreError) -> None:
        self._rest_until = at + REST
        self._complain(error)

    def _complain(self, error: StoreError) -> None:
        if not self._failing:
            self._failing = True
            logger.error("Each worker keeps its own part of the limits for now. %s", error)
