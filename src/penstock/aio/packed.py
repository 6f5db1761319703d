"""Reading files that may be compressed, within bounds: a few bytes of gzip can stand for any number."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError

MOST_BYTES: Final = 512 << 20  # of what is inside
_GZIP: Final = b"\x1f\x8b"


def read_unpacked(path: Path, most: int = MOST_BYTES) -> bytes:
    """What a file holds, compressed with gzip or not.

    Raises OSError, EOFError or zlib.error for what cannot be read, ConfigError for more than `most` bytes.
    """
    with path.open("rb") as file:
        content = file.read(most + 1)
    if content[:2] == _GZIP and len(content) <= most:
        with gzip.open(io.BytesIO(content)) as inside:
            content = inside.read(most + 1)
    if len(content) > most:
        raise ConfigError(f"{path} holds more than {most >> 20} MB; give it in several files.")
    return content
