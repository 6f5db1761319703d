"""The text encoder for judging prose, if it is on this machine: a server fetches nothing while it serves."""

from __future__ import annotations

import asyncio
import logging

from penstock.aio.encoder import MODEL, load_encoder
from penstock.aio.judges.verdict import Embed
from penstock.errors import PenstockError
from penstock.hub.cached import locate

logger = logging.getLogger("penstock.routing")


class PresentEncoder:
    """Loaded when it is first needed. Without one, prose is compared by its words."""

    def __init__(self) -> None:
        self._embed: Embed | None = None
        self._looked = False
        self._looking = asyncio.Lock()  # all who need it wait for the first

    async def embed(self) -> Embed | None:
        async with self._looking:
            if not self._looked:
                self._looked = True
                self._embed = await asyncio.to_thread(_load)
        return self._embed


def _load() -> Embed | None:
    if locate(MODEL) is None:
        logger.info("Answers in prose are compared by their words; 'penstock pull %s' does better.", MODEL)
        return None
    try:
        return load_encoder().embed
    except PenstockError as error:
        logger.warning("Answers in prose are compared by their words: %s", error)
        return None
