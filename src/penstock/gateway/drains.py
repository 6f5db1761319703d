"""Replicas that an administrator has taken out of the rotation, as all processes of the server know them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from penstock.gateway.deployment import Deployment
from penstock.gateway.shared_file import SharedFile

logger = logging.getLogger("penstock.gateway")

_GONE: Final = (0, 0)  # the version of a file that is not there

Names = dict[str, list[str]]  # of replicas, by model


class Drains:
    """By name, so that it outlives a reload, and a discovered server that goes and comes; not the server."""

    def __init__(self, folder: Path) -> None:
        self._names: Names = {}
        # Where it is gone, what is known begins it anew.
        self._file = SharedFile(folder / "drained.json", Names, lambda: self._names)
        self._version = _GONE
        self._failing = False
        self.changes = 0  # so many times others have been drained than before

    async def change(self, model: str, replica: str, drained: bool) -> bool:
        """Drain it or bring it back, for all processes; whether that was news."""

        def changed(names: Names) -> tuple[Names, bool]:
            known = set(names.get(model, ()))
            before = replica in known
            known = known | {replica} if drained else known - {replica}
            return {**names, model: sorted(known)}, before != drained

        return await asyncio.to_thread(self._file.change, changed)

    def apply(self, deployments: Iterable[Deployment]) -> None:
        """Have it be so in this process. Whatever is known holds when the file cannot be read."""
        # The version first: a change in between is then read twice rather than missed.
        version = self._file.version()
        if version == _GONE != self._version:
            self._fail("Their file is gone.")  # whoever cleaned up has brought nobody back
        elif version != self._version:
            try:
                self._names = self._file.read()
            except (OSError, msgspec.MsgspecError) as error:
                self._fail(str(error))
            else:
                self._version, self._failing = version, False
                self.changes += 1
        for deployment in deployments:
            deployment.dispatcher.drain(frozenset(self._names.get(deployment.name, ())))

    def _fail(self, why: str) -> None:
        if not self._failing:
            logger.error("Which replicas are drained cannot be read, and stays as it was. %s", why)
        self._failing = True
