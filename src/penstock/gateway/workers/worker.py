"""A front process among several: told by its supervisor what to serve, ended by it, and gone with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path

import uvloop

from penstock import logs
from penstock.errors import PenstockError
from penstock.gateway.assembly import Assembly
from penstock.gateway.discovery import SharedRegistry
from penstock.gateway.engine_plan import attached, load_tokenizers, plan_engines
from penstock.gateway.front import Front, Signals, open_keys
from penstock.gateway.listening import check_bind
from penstock.gateway.workers.messages import (
    BEAT_SECONDS,
    Beat,
    Begin,
    Failed,
    FromWorker,
    Ready,
    Reload,
    line,
    to_worker,
)
from penstock.gateway.workers.pages import Offer, Pages
from penstock.gateway.workers.scraping import part_socket, scrape
from penstock.observe.metrics import Metrics

logger = logging.getLogger("penstock.workers")


async def serve(listener: socket.socket, begin: Begin, commands: asyncio.StreamReader) -> None:
    settings, folder = begin.settings, Path(begin.sockets)
    signals = Signals(asyncio.get_running_loop())
    plans = plan_engines(settings, lambda stage, done, total: None)
    engines = [attached(plan, settings.gateway.health, folder) for plan in plans]
    tokenizers = await load_tokenizers(plans)
    await asyncio.gather(*(engine.start() for engine in engines))
    metrics = Metrics(process=begin.number, shared=folder)
    assembly = Assembly(
        settings, metrics, SharedRegistry(folder), settings.workers, tells_of_engines=begin.number == 0
    )
    await assembly.build(list(zip(plans, engines, strict=True)), tokenizers)
    keys = open_keys(settings, locked=begin.locked)
    check_bind(settings, keys)
    front = Front(settings, metrics, assembly, keys, folder, leads=begin.number == 0)
    async with (
        Offer(part_socket(folder, begin.number), metrics.part),
        Pages(folder, "console", begin.number, front.console.encoded) as parts,
    ):
        front.gateway.scrape, front.console.others = partial(scrape, folder), parts.others
        listening = asyncio.create_task(_obey(commands, front))
        beating = asyncio.create_task(_beat())
        try:
            await front.serve(listener, signals, ready=lambda: _say(Ready()), draining=_log_draining)
        finally:
            listening.cancel()
            beating.cancel()
            await asyncio.gather(*(engine.shutdown(0.0) for engine in engines))


async def _obey(commands: asyncio.StreamReader, front: Front) -> None:
    """Take the supervisor's messages. When it is gone this process ends as if it had been told to."""
    while said := await commands.readline():
        message = to_worker.decode(said)
        if isinstance(message, Reload):
            try:
                await front.reload(message.settings)
            except PenstockError as error:
                logger.error("The configuration was not changed: %s", error)
    os.kill(os.getpid(), signal.SIGTERM)


async def _beat() -> None:
    """Show the supervisor that this process is not stuck."""
    # A supervisor that is stuck itself does not read: it must not keep this process from its work.
    os.set_blocking(sys.stdout.fileno(), False)
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            _say(Beat())


async def _run(listener: socket.socket) -> None:
    commands = asyncio.StreamReader(limit=16 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    begin = to_worker.decode(await commands.readline())
    assert isinstance(begin, Begin), "a supervisor begins with what to serve"
    settings = begin.settings
    logs.configure(settings.log_level, settings.log_format, str(begin.number))
    try:
        await serve(listener, begin, commands)
    except PenstockError as error:
        _say(Failed(str(error)))
        sys.exit(2)


def _log_draining() -> None:
    logger.info("Taking no new requests; finishing those that run.")


def _say(message: FromWorker) -> None:
    os.write(sys.stdout.fileno(), line(message))


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(listener))


if __name__ == "__main__":
    main()
