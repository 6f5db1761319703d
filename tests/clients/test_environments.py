"""Environments are made once, made again when their versions move, and fail with a reason."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clients import environments
from tests.clients.environments import environment


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a client that needs nothing."""
    monkeypatch.setattr(environments, "PINS", tmp_path)
    monkeypatch.setattr(environments, "HOME", tmp_path / "made")
    path = tmp_path / "some-client.txt"
    path.write_text("# nothing\n")
    return path


def test_an_environment_is_made_once_and_again_when_its_versions_move(
    pins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = environment("some-client")
    assert subprocess.run([programs / "python", "-c", ""]).returncode == 0
    with monkeypatch.context() as patch:
        patch.setattr(environments, "_make", None)
        assert environment("some-client") == programs
    pins.write_text("# nothing, of another version\n")
    assert environment("some-client") != programs
    assert not programs.exists()


def test_a_package_that_pip_cannot_have_is_told_with_pips_reason_and_tried_again(pins: Path) -> None:
    pins.write_text("./no_such_wheel-1.0-py3-none-any.whl\n")
    for _ in range(2):
        with pytest.raises(
            RuntimeError, match=r"some-client cannot be made: `pip install` ended with 1"
        ) as caught:
            environment("some-client")
        assert "no_such_wheel" in str(caught.value)
