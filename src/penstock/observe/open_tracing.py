"""Whether and how requests are traced: by the configuration, and by OpenTelemetry's own variables.

Nothing of OpenTelemetry is imported where requests are not traced.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from penstock import __version__
from penstock.config import TracingConfig
from penstock.errors import ConfigError
from penstock.observe.collector import Collector
from penstock.observe.trace import Sampler, Tally

if TYPE_CHECKING:
    from penstock.observe.tracing import Tracing

PATH: Final = "/v1/traces"
SERVICE_NAME: Final = "penstock"  # where nobody says otherwise
# Of the variables that other exporters read, those for traces go before those for everything.
_FOR_TRACES: Final = "OTEL_EXPORTER_OTLP_TRACES_"
_FOR_ALL: Final = "OTEL_EXPORTER_OTLP_"
_URL: Final = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[^\s/:@\[\]]+)(:\d{1,5})?(/[!-~]*)?")
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def open_tracing(
    config: TracingConfig, environ: Mapping[str, str] = os.environ, tally: Tally | None = None
) -> Tracing | None:
    """None: requests are not traced. Raises ConfigError for what cannot be. `tally`: what is counted there
    outlives a change of the configuration."""
    found = endpoint(config, environ)
    if found is None:
        return None
    url, where = found
    if not _URL.fullmatch(url):
        if "@" in url:  # it may hold a password, which is not shown
            raise ConfigError(f"{where} has a name or password in it; give it as a header: tracing.headers.")
        raise ConfigError(f"{where} must be the http or https URL of a collector, got {url!r}.")
    compression = _variable(environ, "COMPRESSION") or "none"
    if compression not in ("none", "gzip"):
        raise ConfigError(f"Traces are sent as they are or with gzip, not {compression}; set it to gzip.")
    headers = {**pairs(_variable(environ, "HEADERS")), **(config.headers or {})}
    for name, value in headers.items():
        if not (_NAME.fullmatch(name) and value.isascii() and value.isprintable()):
            # The value may be a key: it is not shown.
            raise ConfigError(f"The header {name!r} for traces is none that HTTP has; use printable ASCII.")
    protocol = _variable(environ, "PROTOCOL") or "http/protobuf"
    if protocol != "http/protobuf" and not config.endpoint:
        raise ConfigError(
            f"Traces are sent as http/protobuf, not {protocol}; set {_FOR_TRACES}PROTOCOL=http/protobuf and "
            f"{_FOR_TRACES}ENDPOINT to the collector's HTTP port (often 4318)."
        )
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.proto") is None:
        raise ConfigError(
            f"{where} asks for traces, which need a package that is not installed; run: pip install "
            "'penstock[tracing]', or switch traces off with OTEL_SDK_DISABLED=true."
        )
    from penstock.observe.tracing import Tracing

    certificate = _variable(environ, "CERTIFICATE") or None
    try:
        collector = Collector(
            url,
            headers,
            compressed=compression == "gzip",
            certificate=certificate,
        )
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"OTEL_EXPORTER_OTLP_CERTIFICATE names {certificate}, which cannot be read as certificates "
            f"({error.strerror or error}); name a PEM file."
        ) from None
    sampler = Sampler(share(config, environ), trusting=config.trust_caller)
    return Tracing(collector, sampler, _resource(config, environ), __version__, tally)


def endpoint(config: TracingConfig, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Where spans are sent, and who says so. A server's address alone means its usual path."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if config.endpoint:
        bare = urlsplit(config.endpoint).path in ("", "/")
        return (config.endpoint.rstrip("/") + PATH if bare else config.endpoint), "tracing.endpoint"
    if url := environ.get(f"{_FOR_TRACES}ENDPOINT"):
        return url, f"{_FOR_TRACES}ENDPOINT"
    if url := environ.get(f"{_FOR_ALL}ENDPOINT"):
        return url.rstrip("/") + PATH, f"{_FOR_ALL}ENDPOINT"
    return None


def share(config: TracingConfig, environ: Mapping[str, str]) -> float:
    """Of requests whose caller has not decided. The variables count where the configuration says nothing."""
    sampler, given = environ.get("OTEL_TRACES_SAMPLER", ""), environ.get("OTEL_TRACES_SAMPLER_ARG", "")
    if config.sample is not None:
        return config.sample
    if sampler.endswith("always_off"):
        return 0.0
    if not given or sampler.endswith("always_on"):
        return 1.0
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ConfigError(f"OTEL_TRACES_SAMPLER_ARG must be a share from 0 to 1, got {given!r}.")
    return value


def _resource(config: TracingConfig, environ: Mapping[str, str]) -> dict[str, str]:
    name = config.service_name or environ.get("OTEL_SERVICE_NAME") or SERVICE_NAME
    return {
        "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
        "service.name": name,
        "service.version": __version__,
        **{
            key: value
            for key, value in pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", "")).items()
            if key != "service.name"
        },
    }


def pairs(text: str) -> dict[str, str]:
    """`name=value,name=value`, as headers and attributes are written there. What is no pair is left out."""
    found = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and name.strip():
            found[unquote(name.strip())] = unquote(value.strip())
    return found


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(_FOR_TRACES + name) or environ.get(_FOR_ALL + name) or ""
