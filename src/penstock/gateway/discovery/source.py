"""What all sources have in common: the protocol, and asking again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

logger = logging.getLogger("penstock.discovery")

Addresses = frozenset[str]  # URLs, http or https, without a slash at the end


class SourceError(Exception):
    """The source cannot say where its servers are; the message is a sentence for the log."""


class Source(Protocol):
    def watch(self) -> AsyncIterator[Addresses]:
        """All addresses as soon as they are known, and again whenever they have changed. Does not end."""


async def poll(look: Callable[[], Awaitable[Addresses | None]], every: float) -> AsyncIterator[Addresses]:
    """Look every so many seconds, and pass on what is new; None: as before.

    A look that fails is told once, not each time, and changes nothing: servers do not go away because the
    one that knows them does.
    """
    last: Addresses | None = None
    trouble: str | None = None
    while True:
        try:
            found = await look()
        except SourceError as error:
            if str(error) != trouble:
                trouble = str(error)
                kept = "no server is known yet" if last is None else f"the {len(last)} known servers stay"
                logger.warning("%s Until then %s.", trouble, kept)
        else:
            if trouble is not None:
                logger.warning("Discovery works again.")
                trouble = None
            if found is not None and found != last:
                last = found
                yield found
        await asyncio.sleep(every)
