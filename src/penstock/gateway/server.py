"""Running it: a model behind an address, from the first byte of the weights to a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import signal
import socket
from collections.abc import Iterator

import uvicorn
import uvloop

from penstock import hub
from penstock.config import Settings
from penstock.errors import ConfigError, EngineUnavailableError, PenstockError
from penstock.gateway.app import FrontDoor
from penstock.gateway.backends.local import LocalBackend
from penstock.gateway.banner import Banner
from penstock.gateway.http import LimitedHTTPProtocol
from penstock.gateway.keys import ApiKeys
from penstock.gateway.local.model import ServedModel
from penstock.gateway.state import Gateway
from penstock.text.template_file import read_template
from penstock.text.tokenizer import Tokenizer

KEEP_ALIVE_SECONDS = 75  # longer than the load balancers' usual 60, so that they hang up first
BACKLOG = 2048  # connections that may wait to be accepted
FLUSH_SECONDS = 5  # for the last bytes of answers that are already complete


def run(settings: Settings) -> None:
    """Serve until told to stop. Raises ConfigError, ModelError, or EngineUnavailableError if it dies."""
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
    check_bind(settings)
    template = None if settings.chat_template is None else read_template(settings.chat_template)
    with _bound(settings.host, settings.port) as listener, Banner() as banner:
        files = hub.resolve(settings.model, progress=banner.fetching)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            in_order = runner.run(_serve(settings, files, template, listener, banner))
    if not in_order:
        raise KeyboardInterrupt


def check_bind(settings: Settings) -> None:
    """Without API keys anybody who can reach the address may call: then only this machine should."""
    if settings.api_keys or settings.allow_public or _is_loopback(settings.host):
        return
    raise ConfigError(
        f"host {settings.host} can be reached from other machines, but no API key is set: set one with "
        "--api-key, or say --allow-public if everybody may call."
    )


async def _serve(
    settings: Settings, files: hub.ModelFiles, template: str | None, listener: socket.socket, banner: Banner
) -> bool:
    """Whether it ended in order, or running requests were left behind."""
    signals = _Signals(asyncio.get_running_loop())
    banner.loading(files.name)
    loading = asyncio.create_task(LocalBackend.start(settings.engine_config(str(files.path))))
    # Read beside the weights, which take longer.
    tokenizer = asyncio.create_task(asyncio.to_thread(Tokenizer.load, files, chat_template=template))
    if await signals.first(loading):
        loading.cancel()
    await asyncio.gather(loading, tokenizer, return_exceptions=True)
    if loading.cancelled():
        return True
    backend = loading.result()
    try:
        model = ServedModel(
            settings.served_model_names or (files.name,),
            await tokenizer,
            backend.info,
            settings.reasoning_parser,
        )
        model.tokenizer.check_vocabulary(model.vocab_size)
        gateway = Gateway(model, backend, ApiKeys(settings.api_keys))
        await _answer(settings, gateway, listener, banner, signals)
        return signals.count < 2
    finally:
        await backend.shutdown(0.0)


async def _answer(
    settings: Settings, gateway: Gateway, listener: socket.socket, banner: Banner, signals: _Signals
) -> None:
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _bind_error(settings.host, settings.port, error) from None
    server = _Server(
        uvicorn.Config(
            FrontDoor(gateway),
            http=LimitedHTTPProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=FLUSH_SECONDS,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    dying = asyncio.create_task(gateway.backend.failed())
    banner.ready(_url(listener), gateway.model.names[0], gateway.backend.info, keys=bool(settings.api_keys))
    try:
        if await signals.first(dying, serving):
            await _drain(gateway, settings.drain_seconds, signals, dying, banner)
        failure = dying.result() if dying.done() else None
        gateway.abort_all(str(failure or "The server was stopped before this was complete."))
    finally:
        dying.cancel()
        server.should_exit = True
        server.force_exit = signals.count > 1
        await serving
    if failure is not None:
        raise EngineUnavailableError(f"{failure} The server has stopped with it; start it again.")


async def _drain(
    gateway: Gateway,
    seconds: float,
    signals: _Signals,
    dying: asyncio.Task[PenstockError],
    banner: Banner,
) -> None:
    """Finish what runs while /health still answers; a second signal, the limit or a dead engine ends it."""
    draining = asyncio.create_task(gateway.drain())
    banner.draining(seconds)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await signals.first(draining, dying)
    draining.cancel()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: uvicorn would close the door at once, and /health with it."""
        yield


class _Signals:
    """Counts the requests to stop: the first one drains, the second one leaves at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.count = 0
        self._came = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._note)

    def _note(self) -> None:
        self.count += 1
        self._came.set()

    async def first(self, *others: asyncio.Task[object]) -> bool:
        """Wait for a further signal or for one of `others` to be done; whether it was the signal."""
        self._came.clear()
        came = asyncio.create_task(self._came.wait())
        try:
            await asyncio.wait((came, *others), return_when=asyncio.FIRST_COMPLETED)
            return came.done()
        finally:
            came.cancel()


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
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


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
