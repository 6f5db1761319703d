"""The console's page: plain HTML, CSS and ES modules, served as they lie here. Nothing is built or fetched.

What the page asks of its server, all relative to its own address (so that it works behind a prefix):
`console/NAME` (these files), `console/state` and `console/events` (a Snapshot, once and each second),
`console/reports/NAME` (HTML), `admin/backends/drain` (POST {"model", "replica", "drained"}), `v1/models` and
`v1/chat/completions`. With a key, each carries `Authorization: Bearer`.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Final

INDEX: Final = "index.html"
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# No script but these files, no frame but a report's in a sandbox, no form that leaves. Reports bring their
# style along, which a frame may have only if the page may.
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@functools.cache
def files() -> dict[str, tuple[bytes, str]]:
    """Content and type of each file, by name."""
    folder = resources.files(__name__)
    return {
        entry.name: (entry.read_bytes(), TYPES[suffix])
        for entry in folder.iterdir()
        if (suffix := "." + entry.name.rpartition(".")[2]) in TYPES
    }
