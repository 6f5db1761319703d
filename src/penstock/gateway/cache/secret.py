"""What entries outside this process are sealed with: made once, and kept beside the state."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from penstock.gateway.store.database import LOCK_NAME, make_private, refused
from penstock.hub.lock import locked

FILE_NAME: Final = "cache.secret"
BYTES: Final = 32


def kept_secret(folder: Path) -> bytes:
    """The secret of this folder, which only its owner can read. Raises StoreError where it cannot be kept.

    One that was cut short is made anew: what was sealed with it is then computed again.
    """
    path = folder / FILE_NAME
    make_private(folder / LOCK_NAME)
    try:
        with locked(folder / LOCK_NAME, lambda: None):
            known = path.read_bytes() if path.exists() else b""
            if len(known) == BYTES:
                return known
            made = secrets.token_bytes(BYTES)
            passing = path.with_suffix(".new")  # whoever reads finds all of it or nothing
            passing.unlink(missing_ok=True)
            file = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, made)
            finally:
                os.close(file)
            passing.rename(path)
            return made
    except OSError as error:
        raise refused(path, error) from None
