"""Programs that tests run and pip does not bring; `make test` installs them (tools/packages)."""

from __future__ import annotations

import shutil

import pytest


def needs(program: str, package: str = "") -> str:
    """The path of `program`; without it the test is skipped, or fails where skips are forbidden."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed; run: sudo apt-get install {package or program}")
    return found
