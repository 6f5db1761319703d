"""Who is alive: every worker holds a lock that the system releases when it dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path


class Worker:
    """This process, as the others know it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        while True:
            self.id = secrets.token_hex(8)
            path = folder / f"{self.id}.worker"
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            # Somebody may have taken the file for a dead worker's in between.
            if os.fstat(self._descriptor).st_nlink:
                return
            os.close(self._descriptor)

    def is_alive(self, id: str) -> bool:
        """Whether another worker still runs. What a dead one left behind is removed."""
        path = self._folder / f"{id}.worker"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # too many open files, say: no reason to take anything from anybody
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def bury(self) -> None:
        """Remove what workers that died have left behind."""
        for path in self._folder.glob("*.worker"):
            if path.stem != self.id:
                self.is_alive(path.stem)

    def close(self) -> None:
        (self._folder / f"{self.id}.worker").unlink(missing_ok=True)
        os.close(self._descriptor)
