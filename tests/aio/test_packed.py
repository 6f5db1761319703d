"""Files that may be compressed are read within bounds."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from penstock.aio.packed import read_unpacked
from penstock.errors import ConfigError


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_what_is_inside_is_bounded(tmp_path: Path, pack: type[bytes]) -> None:
    path = tmp_path / "file"
    path.write_bytes(pack(b"x" * (1 << 20)))
    assert read_unpacked(path, 1 << 20) == b"x" * (1 << 20)
    path.write_bytes(pack(b"x" * ((1 << 20) + 1)))
    with pytest.raises(ConfigError, match="file holds more than 1 MB; give it in several files"):
        read_unpacked(path, 1 << 20)
