"""Configuration, address and front door: what `penstock serve` would meet before it loads a model."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.config import Settings, load_settings
from penstock.config.load import find_file, sort_variables
from penstock.doctor.ask import folder_exists
from penstock.doctor.finding import Finding, listed
from penstock.errors import ConfigError, PenstockError

SECTION = "Serving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The settings in effect; the defaults where those could not be read, and then `error` says why."""

    settings: Settings
    file: str | None
    variables: tuple[str, ...]  # names, as their values may be secret
    unknown: tuple[str, ...]
    error: str | None


def look_at_configuration(config: str | None, environ: Mapping[str, str] | None = None) -> Configuration:
    environ = os.environ if environ is None else environ
    known, unknown = sort_variables(environ)
    settings, file, error = Settings(), None, None
    try:
        file = find_file(config, environ)
        # The unknown ones have a finding of their own, and would hide every other mistake.
        rest = {name: value for name, value in environ.items() if name not in unknown}
        settings = load_settings(config=config, environ=rest)
    except ConfigError as failure:
        error = str(failure)
    return Configuration(
        settings=settings,
        file=str(file) if file else None,
        variables=tuple(known),
        unknown=tuple(unknown),
        error=error,
    )


def judge_serving(configuration: Configuration) -> list[Finding]:
    return [
        *_folder(),
        _configuration(configuration),
        *([_unknown(configuration)] if configuration.unknown else []),
        *_front_door(configuration.settings),
        _port(configuration.settings.host, configuration.settings.port),
    ]


def _folder() -> list[Finding]:
    if folder_exists():
        return []
    sentence = "The working folder was deleted, and torch does not start in such a place; go to another."
    return [Finding(SECTION, "folder", "problem", sentence, "cd")]


def _configuration(configuration: Configuration) -> Finding:
    if configuration.error is not None:
        return Finding(SECTION, "configuration", "problem", configuration.error)
    sources = [configuration.file] if configuration.file else []
    sources += configuration.variables
    if not sources:
        sentence = "The defaults: there is no penstock.yaml here, and no PENSTOCK_* variable is set."
        return Finding(SECTION, "configuration", "ok", sentence)
    return Finding(SECTION, "configuration", "ok", f"Taken from {listed(sources)}.")


def _unknown(configuration: Configuration) -> Finding:
    names = listed(list(configuration.unknown))
    verb = "is no option" if len(configuration.unknown) == 1 else "are no options"
    sentence = f"{names} {verb} of Penstock's, and with an unknown one set it does not start."
    return Finding(SECTION, "variables", "problem", sentence, f"unset {' '.join(configuration.unknown)}")


def _front_door(settings: Settings) -> list[Finding]:
    try:
        from penstock.gateway.front import known_keys
        from penstock.gateway.listening import check_bind

        check_bind(settings, known_keys(settings))
    except PenstockError as error:
        return [Finding(SECTION, "host", "problem", str(error))]
    except Exception as error:  # whatever a broken package raises when it is imported
        sentence = f"The front door cannot be loaded: {type(error).__name__}: {error}."
        return [Finding(SECTION, "front door", "problem", sentence)]
    return []


def _port(host: str, port: int) -> Finding:
    if port == 0:
        return Finding(SECTION, "port", "ok", "0: any free one.")
    try:
        # Numbers alone: a name could be asked of the network.
        numeric = "127.0.0.1" if host == "localhost" else host
        family, kind, protocol, _, address = socket.getaddrinfo(
            numeric, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST
        )[0]
    except socket.gaierror:
        return Finding(SECTION, "port", "note", f"{host} is a name, so {port} was not tried on it.")
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            reason = "in use" if error.errno == errno.EADDRINUSE else f"not to be had ({error.strerror})"
            sentence = f"{port} on {host} is {reason}; choose another, 0 for any free one."
            return Finding(SECTION, "port", "warning", sentence, "penstock serve --port 0")
    return Finding(SECTION, "port", "ok", f"{port} on {host} is free.")
