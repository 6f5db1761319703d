"""Servers listed in a file that somebody else keeps up to date."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import yaml

from penstock.config.values import UnfitError, parse_url
from penstock.gateway.discovery.source import Addresses, SourceError, poll

MAX_BYTES = 1 << 20


class FileSource:
    """One URL a line, `#` before a remark; or a list in JSON or YAML. Read again when it has changed.

    An empty file is refused, for it may be half written; `[]` says that there are no servers.
    """

    def __init__(self, path: Path, every: float) -> None:
        self._path = path
        self._every = every
        self._seen: tuple[int, int, int] | None = None  # what was read last: inode, time of change, size

    def watch(self) -> AsyncIterator[Addresses]:
        return poll(self._look, self._every)

    async def _look(self) -> Addresses | None:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Addresses | None:
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                seen = (status.st_ino, status.st_mtime_ns, status.st_size)
                if seen == self._seen:
                    return None
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            self._seen = None
            raise SourceError(f"{self._path} cannot be read: {error.strerror}.") from None
        addresses = read_addresses(content, str(self._path))
        # Bad content stays unseen: it is looked at again, and the trouble ends only when it has.
        self._seen = seen
        return addresses


def read_addresses(content: bytes, name: str) -> Addresses:
    """The URLs of a file; raises SourceError with the first thing that is wrong in it."""
    if len(content) > MAX_BYTES:
        raise SourceError(f"{name} is larger than {MAX_BYTES} bytes.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(f"{name} is not UTF-8 text.") from None
    lines = [(number, line.split("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1)]
    entries = [(f"line {number}", line) for number, line in lines if line]
    if not entries:
        raise SourceError(f"{name} is empty; write [] if there are no servers.")
    if entries[0][1].startswith(("[", "-")):
        entries = _listed(text, name)
    found = []
    for place, entry in entries:
        try:
            found.append(parse_url(entry))
        except UnfitError as error:
            what = repr(entry) if error.quote else "the address"
            raise SourceError(f"{name}, {place}: {what} {error}.") from None
        except ValueError:
            raise SourceError(f"{name}, {place}: there is no address.") from None
    return frozenset(found)


def _listed(text: str, name: str) -> list[tuple[str, str]]:
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1})" if mark else ""
        raise SourceError(f"{name} is neither JSON nor YAML{place}.") from None
    if not isinstance(content, list) or not all(isinstance(entry, str) for entry in content):
        raise SourceError(f"{name} must be a list of URLs.")
    return [(f"entry {number}", entry) for number, entry in enumerate(content, 1)]
