"""What an install does about the native kernels."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hatchling", reason="only an install from source needs it")
LIBRARY = "src/penstock/engine/native/lib/kernels-some.so"
BUILDS = f"""
from pathlib import Path

def build(folder=None):
    path = Path({LIBRARY!r}).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"compiled")
    return [path]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src/penstock/engine/native").mkdir(parents=True)
    return tmp_path


def built(project: Path, script: str | None, version: str = "standard") -> dict[str, Any]:
    """What the hook tells the builder of a wheel, with this in the place of the kernels' own script."""
    if script is not None:
        (project / "src/penstock/engine/native/build.py").write_text(script)
    spec = importlib.util.spec_from_file_location(
        "hatch_build", Path(__file__).resolve().parents[1] / "hatch_build.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    data: dict[str, Any] = {"artifacts": [], "pure_python": True, "tag": ""}
    module.KernelsHook(str(project), {}, None, None, str(project / "dist"), "wheel").initialize(version, data)
    return data


def test_a_wheel_with_kernels_is_for_this_platform_and_any_python(project: Path) -> None:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert built(project, BUILDS) == {
        "artifacts": ["src/penstock/engine/native/lib/*"],
        "pure_python": False,
        "tag": f"py3-none-{platform}",
    }


def test_an_editable_install_builds_them_in_place(project: Path) -> None:
    assert built(project, BUILDS, "editable")["pure_python"] is True
    assert (project / LIBRARY).exists()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("def build(folder=None):\n    return []\n", ""),
        ("def build(folder=None):\n    raise OSError('disk full')\n", "OSError: disk full"),
        ("import nothing_like_it\n", "No module named 'nothing_like_it'"),
        (None, "No such file or directory"),
    ],
)
def test_without_kernels_the_install_goes_on_with_a_wheel_for_everywhere(
    script: str | None, said: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert built(project, script) == {"artifacts": [], "pure_python": True, "tag": ""}
    assert said in capsys.readouterr().err
