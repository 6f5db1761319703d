"""A Penstock server with engines of its own, started as a user would."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from gateway.gateways import HOST, create_key, free_port
from gateway.processes import Process

from .clients import MODEL, House, Sizes, open_session

START_SECONDS = 180.0


@contextlib.contextmanager
def house(sizes: Sizes, folder: Path, limits: dict[str, dict[str, Any]]) -> Iterator[House]:
    """A server with engines of its own and these tenants."""
    port, cores = free_port(), len(os.sched_getaffinity(0))
    config = {
        "host": HOST,
        "port": port,
        "state_dir": str(folder / "state"),
        "models": {
            MODEL: {
                "backends": [
                    {
                        "engine": "default",
                        "replicas": sizes.replicas,
                        "threads": max(1, (cores - 1) // sizes.replicas),
                        "max_running": sizes.max_running,
                        "max_step_tokens": sizes.max_step_tokens,
                        "max_model_len": 1024,
                    }
                ]
            }
        },
        "tenants": limits,
        "queue": {"max_requests": sizes.queue, "wait": 30},
    }
    path = folder / "penstock.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    keys = {tenant: create_key(path, tenant) for tenant in limits}
    command = [sys.executable, "-m", "penstock", "serve", "--config", str(path)]
    process = Process(command, cores=os.sched_getaffinity(0), log=folder / "serve.log", env={"NO_COLOR": "1"})
    try:
        running = House(f"http://{HOST}:{port}", keys, sizes)
        asyncio.run(_ready(running, process))
        yield running
    finally:
        process.stop()


async def _ready(running: House, process: Process) -> None:
    deadline = time.monotonic() + START_SECONDS
    async with open_session() as session:
        while True:
            outcome = await running.ask(session, next(iter(running.keys)))
            if outcome.error is None:
                return
            if process.popen.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"The server did not start ({outcome.error}):\n{process.last_words()}")
            await asyncio.sleep(0.1)
