"""The address: taken before anything is loaded, listened on when there is somebody to answer."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterator

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.gateway.accounts import KeyRing

BACKLOG = 2048  # connections that may wait to be accepted


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


def is_address(host: str) -> bool:
    """Whether it is one itself: a name could be made to lead anywhere."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_bind(settings: Settings, keys: KeyRing) -> None:
    """Without API keys anybody who can reach the address may call: then only this machine should."""
    if keys.locks_with(settings.api_keys) or settings.allow_public or is_loopback(settings.host):
        return
    raise ConfigError(
        f"host {settings.host} can be reached from other machines, but there is no API key: make one with "
        "'penstock keys create', set one with --api-key, or say --allow-public if everybody may call."
    )


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen(settings: Settings, listener: socket.socket) -> None:
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _bind_error(settings.host, settings.port, error) from None
