"""What tells two models' files apart in milliseconds, however large they are."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from penstock.hub.regular import open_regular
from penstock.hub.split import all_parts

BLOCKS: Final = 64  # of each file, evenly spread, the first and the last among them
BLOCK_BYTES: Final = 64 * 1024


def fingerprint(path: Path) -> str:
    """SHA-256 over the size and the sampled blocks of each file of the weights; all bytes of small files.

    Weights that were trained, merged or quantized in another way differ nearly everywhere, so that a sample
    shows it; a few bytes changed on purpose it may miss. Empty if there is no file, or one cannot be read.
    """
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else all_parts(path)
    digest = hashlib.sha256()
    try:
        for file in files:
            _add(digest, file)
    except OSError:
        return ""
    return digest.hexdigest() if files else ""


def _add(digest: hashlib._Hash, path: Path) -> None:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(b"%d\n" % size)
        if size <= BLOCKS * BLOCK_BYTES:
            digest.update(file.read())
            return
        for number in range(BLOCKS):
            digest.update(os.pread(file.fileno(), BLOCK_BYTES, (size - BLOCK_BYTES) * number // (BLOCKS - 1)))
