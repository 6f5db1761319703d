"""Environments of their own for programs from PyPI, made once and kept in a cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


class EnvironmentFailedError(RuntimeError):
    """An environment could not be made; the message is pip's."""


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "penstock-benchmarks"


def environment(
    cache: Path, name: str, wishes: Sequence[str], say: Callable[[str], None]
) -> tuple[Path, str | None]:
    """The `bin` folder of an environment with the first of `wishes` that installs.

    Also says what is not as wished, if the first would not install. An environment is used again only when
    its installation went to the end.
    """
    folder = cache / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    complete = folder / "installed"
    if complete.exists():
        return folder / "bin", complete.read_text() or None
    failures: list[str] = []
    for wish in wishes:
        say(f"installing {wish} into {folder} (once)")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        done = subprocess.run(
            [str(folder / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", wish],
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            note = f"{wishes[0]} could not be installed; this is {wish}" if failures else ""
            complete.write_text(note)
            return folder / "bin", note or None
        failures.append(
            done.stderr.strip().splitlines()[-1]
            if done.stderr.strip()
            else f"pip ended with {done.returncode}"
        )
    shutil.rmtree(folder, ignore_errors=True)
    raise EnvironmentFailedError(f"{wishes[0]} could not be installed: {failures[0]}")


def version(binaries: Path, package: str) -> str:
    found = subprocess.run(
        [
            str(binaries / "python"),
            "-c",
            f"from importlib.metadata import version; print(version({package!r}))",
        ],
        capture_output=True,
        text=True,
    )
    return found.stdout.strip() or "unknown"
