"""Where what was made goes: the screen, or a file that is whole or not there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock.errors import ConfigError

STDOUT = "-"


def write(text: str, output: str | None) -> None:
    """To stdout without a file. Prometheus may be reading the file: it never sees half of it."""
    if output is None or output == STDOUT:
        sys.stdout.write(text)
        return
    path = Path(output)
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a pipe or a terminal
            path.write_text(text, encoding="utf-8")
            return
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{path} cannot be written: {reason}; give another --output.") from None
    print(f"wrote {path}", file=sys.stderr)
