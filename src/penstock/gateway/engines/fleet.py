"""Several engines on one machine: where they listen, and how they start together."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from penstock.gateway.engines.kept import KeptEngine
from penstock.gateway.shared_file import SharedFile

AT_ONCE = 2  # engines that load at the same time: they read the same disk and fill the same memory


@contextlib.contextmanager
def socket_folder() -> Iterator[Path]:
    """A folder for engines' sockets that nobody but this user can enter; gone at the end."""
    with tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True) as folder:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_SH)  # what systemd-tmpfiles leaves alone, however old it is
            yield Path(folder)
        finally:
            os.close(held)


def socket_path(folder: Path, name: str) -> Path:
    """Where the engine of this name listens. Names may be long and hold anything; paths may not."""
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.sock"


def note_deaths(listen: Path, deaths: Mapping[str, int]) -> None:
    """Tell the processes that use an engine of its deaths, beside the socket where it listens: a connection
    that closes does not say why."""
    SharedFile(listen.with_suffix(".deaths"), dict[str, int], dict).change(lambda _: (dict(deaths), None))


def noted_deaths(listen: Path) -> dict[str, int]:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return SharedFile(listen.with_suffix(".deaths"), dict[str, int], dict).read()
    return {}


async def start_engines(engines: Sequence[KeptEngine], at_once: int = AT_ONCE) -> None:
    """Start all of them, a few at a time. If one cannot, none is left running and its error is raised."""
    places = asyncio.Semaphore(at_once)

    async def start(engine: KeptEngine) -> None:
        async with places:
            await engine.start()

    starting = [asyncio.create_task(start(engine)) for engine in engines]
    try:
        await asyncio.gather(*starting)
    except BaseException:
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        await asyncio.gather(*(engine.shutdown(0.0) for engine in engines))
        raise
