"""Running it: models behind an address, from the first byte of the weights to a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterator

import uvloop

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.gateway.accounts import KeyRing
from penstock.gateway.assembly import Assembly
from penstock.gateway.banner import Banner
from penstock.gateway.engine_plan import EnginePlan, load_tokenizers, managed, named, plan_engines
from penstock.gateway.engines import start_engines
from penstock.gateway.front import BACKLOG, Front, Signals, open_keys, reloaded
from penstock.observe.metrics import Metrics


def run(settings: Settings, reread: Callable[[], Settings] | None = None) -> None:
    """Serve until told to stop. Raises ConfigError, ModelError, or EngineUnavailableError at the start.

    `reread` gives the settings as the sources of configuration are by then.
    """
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
    keys = open_keys(settings)
    check_bind(settings, keys)
    with bound(settings.host, settings.port) as listener, Banner() as banner:
        settings = named(settings, banner.fetching)
        plans = plan_engines(settings, banner.fetching)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            in_order = runner.run(_serve(settings, plans, keys, listener, banner, reread))
    if not in_order:
        raise KeyboardInterrupt


def check_bind(settings: Settings, keys: KeyRing) -> None:
    """Without API keys anybody who can reach the address may call: then only this machine should."""
    if keys.locked or settings.allow_public or _is_loopback(settings.host):
        return
    raise ConfigError(
        f"host {settings.host} can be reached from other machines, but there is no API key: make one with "
        "'penstock keys create', set one with --api-key, or say --allow-public if everybody may call."
    )


async def _serve(
    settings: Settings,
    plans: list[EnginePlan],
    keys: KeyRing,
    listener: socket.socket,
    banner: Banner,
    reread: Callable[[], Settings] | None,
) -> bool:
    """Whether it ended in order, or running requests were left behind."""
    signals = Signals(asyncio.get_running_loop())
    engines = [managed(plan, settings.gateway.health) for plan in plans]
    banner.loading(plans)
    # Tokenizers are read beside the weights, which take longer.
    tokenizers = asyncio.create_task(load_tokenizers(plans))
    loading = asyncio.create_task(start_engines(engines))
    if await signals.first(loading):
        loading.cancel()
    await asyncio.gather(loading, tokenizers, return_exceptions=True)
    if loading.cancelled():
        return True
    loading.result()
    try:
        metrics = Metrics()
        assembly = Assembly(settings, metrics)
        await assembly.build(list(zip(plans, engines, strict=True)), await tokenizers)
        front = Front(settings, metrics, assembly, keys)
        _listen(settings, listener)
        if reread is not None:
            _reload_on_hangup(signals, settings, reread, front)
        await front.serve(
            listener,
            signals,
            ready=lambda: banner.ready(url_of(listener), assembly.deployments, locked=keys.locked),
            draining=lambda: banner.draining(settings.drain_seconds),
        )
        return signals.count < 2
    finally:
        await asyncio.gather(*(engine.shutdown(0.0) for engine in engines))


def _reload_on_hangup(
    signals: Signals, settings: Settings, reread: Callable[[], Settings], front: Front
) -> None:
    current = settings

    def read() -> Settings:
        # The name of the one model of flat options does not change while it is served.
        return dataclasses.replace(reread(), served_model_names=settings.served_model_names)

    async def reload() -> None:
        nonlocal current
        current = await reloaded(current, read, front.reload)

    signals.on_hangup(reload)


def _listen(settings: Settings, listener: socket.socket) -> None:
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _bind_error(settings.host, settings.port, error) from None


@contextlib.contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """Take the address before the model is loaded, so that a taken port is known at once; listen later."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror:
        raise ConfigError(f"host {host!r} is not an address of this machine.") from None
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise _bind_error(host, port, error) from None
        yield listener


def _bind_error(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"Port {port} on {host} is in use; choose another with --port, 0 for any free one."
        )
    if error.errno == errno.EACCES:
        return ConfigError(f"Port {port} on {host} needs more rights; choose one above 1023 with --port.")
    return ConfigError(f"Cannot listen on {host} port {port}: {error.strerror or error}.")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
