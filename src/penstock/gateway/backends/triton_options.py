"""What a configuration may say about a model on Triton, under the backend's `options`."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Meta

from penstock.config.sections import BackendConfig
from penstock.config.values import parse_url
from penstock.errors import ConfigError
from penstock.protocol.triton_request import TritonNames

METRICS_PORT = 8002


class TritonOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    endpoint: Literal["generate", "infer"] = "generate"  # how text is asked for; infer has no streams
    version: str | None = None  # of the model; the server chooses otherwise
    text_input: str = "text_input"
    text_output: str = "text_output"
    embedding_output: str | None = None  # the only output of numbers otherwise
    max_tokens: Annotated[int, Meta(ge=1)] = 1024  # of an answer whose client gives no limit
    prompt_in_output: bool | None = None  # whether the prompt comes back in front; learned otherwise
    metrics_url: str | None = None  # the server's own host at port 8002 otherwise

    @property
    def names(self) -> TritonNames:
        return TritonNames(self.text_input, self.text_output)


def read_options(config: BackendConfig) -> TritonOptions:
    try:
        options = msgspec.convert(dict(config.options or {}), TritonOptions)
    except msgspec.ValidationError as error:
        known = ", ".join(TritonOptions.__struct_fields__)
        raise ConfigError(
            f"The options of the backend {config.name!r} are wrong: {error}. A triton knows {known}."
        ) from None
    if options.metrics_url is not None:
        try:
            parse_url(options.metrics_url)
        except ValueError as error:
            why = str(error) or "is not an address"
            raise ConfigError(f"The metrics_url of the backend {config.name!r} {why}.") from None
    return options


def metrics_page(config: BackendConfig, options: TritonOptions) -> tuple[str, bytes]:
    """The server that has the metrics, and their path there."""
    if options.metrics_url is not None:
        page = urlsplit(options.metrics_url)
        return urlunsplit((page.scheme, page.netloc, "", "", "")), (page.path or "/metrics").encode()
    server = urlsplit(config.url or "")
    host = f"[{server.hostname}]" if ":" in (server.hostname or "") else server.hostname
    return f"{server.scheme}://{host}:{METRICS_PORT}", b"/metrics"
