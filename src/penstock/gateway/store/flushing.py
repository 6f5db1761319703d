"""Writing sums that have gathered in memory: what the disk does not take is kept and tried again, and one
that can never be written does not hold up the rest."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from penstock.gateway.store.database import StoreError

logger = logging.getLogger("penstock.gateway")

Key = TypeVar("Key")
Sum = TypeVar("Sum")


class Flusher:
    """One flush at a time, since a table has one connection. `what` begins the sentences of the log."""

    def __init__(self, what: str) -> None:
        self.lock = threading.Lock()
        self.failing = False
        self._what = what

    def flush(
        self,
        add: Callable[[Mapping[Key, Sum]], None],
        take: Callable[[], Mapping[Key, Sum]],
        keep: Callable[[Mapping[Key, Sum]], None],
    ) -> bool:
        """Write with `add` what `take` gives; `keep` gets back what is to be tried again. False: some is."""
        with self.lock:
            batch = take()
            if not batch:
                return True
            try:
                add(batch)
            except StoreError as error:
                keep(batch)
                if not self.failing:
                    logger.error("%s: kept in memory until it can be written. %s", self._what, error)
                self.failing = True
                return False
            except Exception:  # not the disk's fault: it would be the same the next time
                kept = _apart(add, batch)
                keep(kept)
                return not kept
            except BaseException:
                keep(batch)
                raise
            if self.failing:
                logger.info("%s: written again; nothing was lost.", self._what)
            self.failing = False
            return True


def _apart(add: Callable[[Mapping[Key, Sum]], None], batch: Mapping[Key, Sum]) -> dict[Key, Sum]:
    """Write the sums of a batch one by one, and return those that the disk did not take, to be tried again.

    What can never be written goes to the log instead, whole, so that somebody can add it by hand.
    """
    kept: dict[Key, Sum] = {}
    for key, value in batch.items():
        try:
            add({key: value})
        except StoreError:
            kept[key] = value
        except Exception as error:
            logger.error("A sum that cannot be written is left out: %r of %r (%s).", value, key, error)
    return kept
