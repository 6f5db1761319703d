"""The head of a request: checked once where it is built, so that nothing in it can begin another line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from penstock.errors import ConfigError

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(rb"[\x20-\x7e\x80-\xff\t]*")
PATH: Final = re.compile(rb"/[\x21-\x7e]*")

# The client writes these itself, or they belong to one connection and not to the request.
_OURS: Final = frozenset(
    {
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"connection",
        b"keep-alive",
        b"upgrade",
        b"te",
        b"trailer",
    }
    | {b"expect", b"accept-encoding", b"proxy-connection"}
)


def header_lines(fields: Iterable[tuple[str, str]]) -> bytes:
    """The fields as lines of a head. ConfigError for what would not be one field of the request."""
    lines = []
    for name, value in fields:
        key, text = name.encode("latin-1", "replace").lower(), value.encode("latin-1", "replace").strip()
        if not _NAME.fullmatch(key):
            raise ConfigError(f"{name!r} cannot be the name of a header; use letters, digits and hyphens.")
        if key in _OURS:
            raise ConfigError(f"The header {name} is set by the gateway itself; leave it out.")
        if not _VALUE.fullmatch(text):
            # The value may be a key: it is not shown.
            raise ConfigError(
                f"The value of the header {name} has a line break or another control character."
            )
        lines.append(key + b": " + text + b"\r\n")
    return b"".join(lines)
