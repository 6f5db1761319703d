"""Pages that benchmarks have left for the console: HTML files in one folder, shown as they are."""

from __future__ import annotations

import html
import re
import stat
from pathlib import Path
from typing import Final

from penstock.observe.snapshot import ReportNow

FOLDER: Final = "reports"  # in the state folder
MOST: Final = 100
MOST_BYTES: Final = 16 << 20
# A report brings its style along; whatever else is in it does nothing.
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.html")
_TITLE: Final = re.compile(rb"<title>(.{1,500}?)</title>", re.DOTALL)
_HEAD_BYTES: Final = 4096


class Reports:
    """Its methods read files: for a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list(self) -> list[ReportNow]:
        """The newest first."""
        found = []
        try:
            names = [path.name for path in self._folder.iterdir()]
        except OSError:  # nobody has left one yet
            return []
        for name in names:
            try:
                path = self._path(name)
                with path.open("rb") as file:
                    head = file.read(_HEAD_BYTES)
                at = path.stat().st_mtime
            except OSError:  # it is being replaced, or is not ours to show
                continue
            if not head:  # of a measurement that goes on, or has failed
                continue
            title = _TITLE.search(head)
            text = html.unescape(title[1].decode("utf-8", "replace")).strip() if title else name
            found.append(ReportNow(name=name, title=text, at=at))
        return sorted(found, key=lambda report: report.at, reverse=True)[:MOST]

    def read(self, name: str) -> bytes | None:
        """None: there is no such report."""
        try:
            return self._path(name).read_bytes()
        except OSError:
            return None

    def _path(self, name: str) -> Path:
        """Where it is; raises OSError for what is none, or is not a plain file here: a pipe would be waited
        for, and a link may lead anywhere."""
        if not _NAME.fullmatch(name):
            raise FileNotFoundError(name)
        path = (self._folder / name).resolve(strict=True)
        seen = path.stat()
        plain = path.parent == self._folder.resolve() and stat.S_ISREG(seen.st_mode)
        if not plain or seen.st_size > MOST_BYTES:
            raise FileNotFoundError(name)
        return path
