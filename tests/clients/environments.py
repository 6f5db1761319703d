"""Environments for clients that cannot live beside this project's own packages, or should not.

Each client has a file of exact versions beside this one, dependencies included: NAME.txt. The environment
is made from it with pip, once, below .venv-clients/, and found again as long as neither the file nor the
Python changes. To move the versions: install the client alone in a fresh environment, and write what
`pip freeze --all` says into the file.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PINS = Path(__file__).parent
HOME = PINS.parents[1] / ".venv-clients"
PIP_SECONDS = 240


def environment(name: str, pins_at: Path | None = None) -> Path:
    """The folder of programs of the client's environment, which is made first if need be."""
    pins = (pins_at or PINS) / f"{name}.txt"
    key = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = HOME / f"{name}-{key}"
    complete = folder / ".complete"
    HOME.mkdir(exist_ok=True)
    with _alone(HOME / f"{name}.lock"):
        if not complete.is_file():
            for old in HOME.glob(f"{name}-*"):
                shutil.rmtree(old)
            _make(name, folder, pins)
            complete.touch()
    return folder / "bin"


def ran(name: str, script: str, *arguments: str) -> dict[str, Any]:
    """What a script beside this file, run in the client's environment, printed as JSON."""
    program = environment(name) / "python"
    done = subprocess.run(
        [program, "-W", "error", str(PINS / script), *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def _make(name: str, folder: Path, pins: Path) -> None:
    venv.create(folder, with_pip=False)  # ours serves it, which saves seconds
    # The file lists everything: nothing is to be resolved, and a package it lacks is found by the check.
    _pip(name, folder, "install", "--no-deps", "--no-compile", "--quiet", "--requirement", str(pins))
    _pip(name, folder, "check")


def _pip(name: str, folder: Path, *arguments: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder),
        "--disable-pip-version-check",
        *arguments,
    ]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PIP_SECONDS, check=False
    )
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise RuntimeError(
            f"The environment of the client {name} cannot be made: `pip {arguments[0]}` ended with "
            f"{done.returncode}. Check pip's index, or tests/clients/{name}.txt. It said:\n{last}"
        )


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two test runs at once take turns."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
