"""Running it: models behind an address, from the first byte of the weights to a clean end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import uvloop

from penstock import logs
from penstock.aio.encoder import load_encoder
from penstock.config import Settings
from penstock.gateway.accounts import KeyRing
from penstock.gateway.assembly import Assembly
from penstock.gateway.banner import Banner
from penstock.gateway.discovery import SharedRegistry
from penstock.gateway.engine_plan import EnginePlan, load_tokenizers, managed, named, plan_engines
from penstock.gateway.engines import socket_folder
from penstock.gateway.front import Front, Signals, open_keys, reload_on_hangup, started
from penstock.gateway.listening import bound, check_bind, listen, url_of
from penstock.gateway.routing.ladder import check_ladder
from penstock.gateway.workers.supervisor import supervise
from penstock.observe.metrics import Metrics
from penstock.observe.open_tracing import open_tracing


def run(settings: Settings, reread: Callable[[], Settings]) -> None:
    """Serve until told to stop. Raises ConfigError, ModelError, or EngineUnavailableError at the start.

    `reread` gives the settings as the sources of configuration are by then.
    """
    logs.configure(settings.log_level, settings.log_format)
    # Opened once: a state that is lost while the model is loaded must not leave the server unlocked.
    keys = open_keys(settings)
    check_bind(settings, keys)
    check_ladder(settings.gateway)  # before models are fetched and loaded
    open_tracing(settings.gateway.tracing)
    with bound(settings.host, settings.port) as listener, Banner() as banner:
        settings = named(settings, banner.fetching)
        plans = plan_engines(settings, banner.fetching)
        if settings.gateway.cache.semantic or settings.gateway.routing.predictor == "encoder":
            load_encoder(progress=banner.fetching)  # fetched here, where one can see how far it is
        serve = _serve if settings.workers == 1 else supervise
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, socket_folder() as folder:
            in_order = runner.run(serve(settings, plans, folder, listener, banner, reread, keys))
    if not in_order:
        raise KeyboardInterrupt


async def _serve(
    settings: Settings,
    plans: list[EnginePlan],
    folder: Path,
    listener: socket.socket,
    banner: Banner,
    reread: Callable[[], Settings],
    keys: KeyRing,
) -> bool:
    """Whether it ended in order, or running requests were left behind."""
    signals = Signals(asyncio.get_running_loop())
    engines = [managed(plan, settings.gateway.health) for plan in plans]
    banner.loading([plan.files.name for plan in plans])
    # Tokenizers are read beside the weights, which take longer.
    tokenizers = asyncio.create_task(load_tokenizers(plans))
    try:
        if not await started(engines, signals):
            return True
    finally:
        await asyncio.gather(tokenizers, return_exceptions=True)
    try:
        metrics = Metrics()
        assembly = Assembly(settings, metrics, SharedRegistry(folder))
        await assembly.build(list(zip(plans, engines, strict=True)), await tokenizers)
        front = Front(settings, metrics, assembly, keys, folder)
        listen(settings, listener)
        reload_on_hangup(signals, settings, reread, front.reload)
        await front.serve(
            listener,
            signals,
            ready=lambda: banner.ready(url_of(listener), assembly.deployments, settings, locked=keys.locked),
            draining=lambda: banner.draining(settings.drain_seconds),
        )
        return signals.count < 2
    finally:
        await asyncio.gather(*(engine.shutdown(0.0) for engine in engines))
