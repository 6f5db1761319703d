"""`penstock top`: what the console shows, in the terminal."""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from penstock.cli.options import examples
from penstock.errors import ConfigError, EngineUnavailableError

if TYPE_CHECKING:
    from penstock.observe.snapshot import Snapshot

DEFAULT_URL = "http://127.0.0.1:8000"
ANSWER_SECONDS = 5.0
MOST_BYTES = 64 << 20
PIPE_COLUMNS = 120
EPILOG = examples(
    ("penstock top", "the server on this machine, until Ctrl-C"),
    (
        "penstock top --url https://llm.example --key sk-penstock-...",
        "another one, with an administrator's key",
    ),
    ("penstock top --once", "once, for a log or a mail"),
    ("penstock top --json | jq '.models[].replicas[] | select(.state != \"healthy\")'", "for a script"),
)


def top(
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Where the server is.")] = DEFAULT_URL,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            "--api-key",
            metavar="KEY",
            help="An administrator's key, where the server has keys; OPENAI_API_KEY otherwise.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once, all of it, and leave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it once, as one JSON object.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.2, max=3600, help="How often to look.")
    ] = 1.0,
) -> None:
    """Watch a running server: traffic, queues, replicas, tenants, the last requests, alerts."""
    server = Watched(url, key or os.environ.get("OPENAI_API_KEY"))
    raw = server.raw()
    first = server.read(raw)  # what is wrong is said before the screen is taken
    if as_json:
        print(json.dumps(json.loads(raw), indent=2, ensure_ascii=False))
        return
    if once or not sys.stdout.isatty():
        _print(first, server.address)
    else:
        _watch(server, first, every)


def _print(now: Snapshot, address: str) -> None:
    from rich.console import Console

    from penstock.cli.top_view import view

    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(highlight=False, width=None if known else PIPE_COLUMNS)
    console.print(view(now, address, width=console.width))


def _watch(server: Watched, now: Snapshot, every: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from penstock.cli.top_view import view

    console = Console(highlight=False)
    trouble = ""
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                size = console.size
                shown = view(now, server.address, rows=size.height, width=size.width, trouble=trouble)
                live.update(shown, refresh=True)
                time.sleep(every)
                try:
                    now, trouble = server.read(server.raw()), ""
                except (EngineUnavailableError, NoPenstockError) as error:  # or a proxy that speaks for it
                    of = time.strftime("%H:%M:%S", time.localtime(now.at))
                    trouble = f"These are the figures of {of}. {error}"
    except KeyboardInterrupt:
        return  # that is how one leaves


class NoPenstockError(ConfigError):
    """Somebody answers, but as no server of ours does."""


class Watched:
    """A server, asked for what its console shows."""

    def __init__(self, url: str, key: str | None) -> None:
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            port = parts.port
            (parts.hostname or "").encode("idna")
            known = parts.scheme in ("http", "https") and parts.hostname and port != 0
        except ValueError:
            known = False
        if not known:
            raise ConfigError(f"--url must be an address such as {DEFAULT_URL}, got {url!r}.")
        key = (key or "").strip()
        if not (key.isascii() and key.isprintable()):
            # It may be a key with something added to it: it is not shown.
            raise ConfigError("The key has characters that no key has; copy it from where it was made.")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", port
        self._path = parts.path.rstrip("/").removesuffix("/v1") + "/console/state"
        self._headers = {"Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self.address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def read(self, raw: bytes) -> Snapshot:
        import msgspec

        from penstock.observe.snapshot import Snapshot

        try:
            return msgspec.json.decode(raw, type=Snapshot)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise NoPenstockError(
                f"{self.address} answers, but not as this version of Penstock does; see --url."
            ) from None

    def raw(self) -> bytes:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", self._path, headers=self._headers)
            response = connection.getresponse()
            status, body = response.status, response.read(MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            slow = isinstance(error, TimeoutError)
            reason = f"no answer within {ANSWER_SECONDS:g} s" if slow else str(error) or repr(error)
            raise EngineUnavailableError(f"{self.address} cannot be reached: {reason}.") from None
        finally:
            connection.close()
        if status == 200 and body.lstrip()[:1] == b"{":
            return body
        raise self._refused(status, _error(body))

    def _refused(self, status: int, error: dict[str, Any] | None) -> Exception:
        if status >= 500:
            said = clean(str(error.get("message", ""))) if error is not None else "it may be starting."
            return EngineUnavailableError(f"{self.address} answered {status}: {said}")
        if error is None:
            return NoPenstockError(f"{self.address} answers, but it is no Penstock server; see --url.")
        said = clean(str(error.get("message", "")))
        if status in (401, 403):
            return ConfigError(f"{self.address}: {said} Give an administrator's key with --key.")
        if status == 404 and error.get("code") != "console_off":
            return ConfigError(
                f"{self.address} has no console; it may be another server or an older Penstock."
            )
        return ConfigError(f"{self.address} answered {status}: {said}")


def clean(text: str) -> str:
    """Names come from clients and from other servers: what a terminal would obey is not shown to it."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _error(body: bytes) -> dict[str, Any] | None:
    """The error of an answer in the shape that Penstock and OpenAI's servers give it."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return error if isinstance(error, dict) else None
