"""Batches that cannot be written, though nothing is wrong with the disk: one sum in them must not hold up the
rest for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from penstock.gateway.store.database import StoreError

logger = logging.getLogger("penstock.gateway")

Key = TypeVar("Key")
Sum = TypeVar("Sum")


def write_apart(add: Callable[[Mapping[Key, Sum]], None], batch: Mapping[Key, Sum]) -> dict[Key, Sum]:
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
