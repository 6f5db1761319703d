"""The repository's own machinery: pinned versions, the environment script, forbidden skips."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_every_dependency_is_bounded_and_pinned_within_its_bounds() -> None:
    pinned = pins()
    extras = PROJECT["optional-dependencies"].values()
    for text in [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]:
        requirement = Requirement(text)
        operators = {specifier.operator for specifier in requirement.specifier}
        assert operators == {">=", "<"}, text
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), text


def test_the_core_does_not_need_torch() -> None:
    names = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    assert names.isdisjoint({"torch", "transformers", "huggingface-hub"})


def test_pins_have_no_local_versions() -> None:
    assert not [version for version in pins().values() if "+" in version]


def test_every_make_target_is_listed_in_the_help() -> None:
    text = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True).stdout
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE):
        assert f"make {target} " in text, target


@pytest.fixture
def bare_clone(tmp_path: Path) -> Path:
    """What `tools/environment` needs of the repository, without an environment."""
    for name in ("tools/environment", "Makefile", "constraints.txt", "pyproject.toml"):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, target)
    return tmp_path


def environment(clone: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [clone / "tools" / "environment", "engine"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_python_that_is_too_old_is_one_sentence(bare_clone: Path) -> None:
    done = environment(bare_clone, PYTHON="/bin/false")
    assert done.returncode == 2
    assert done.stderr.startswith("penstock: PYTHON=/bin/false is not a Python 3.11 or newer")
    assert done.stderr.count("\n") == 1


def test_no_python_at_all_is_one_sentence(bare_clone: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "env", "flock", "grep"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    done = environment(bare_clone, PATH=str(tools), PYTHON="")
    assert done.returncode == 2
    assert done.stderr.startswith("penstock: No Python 3.11 or newer was found")
    assert done.stderr.count("\n") == 1


SKIPPING = """
import pytest
def test_that_skips():
    pytest.skip("a library is missing")
@pytest.mark.gpu
def test_that_needs_a_device():
    pytest.skip("no device")
@pytest.mark.data
def test_that_needs_data():
    pytest.skip("no data")
@pytest.mark.xfail
def test_that_is_known_to_fail():
    assert False
"""


def outcome(folder: Path, forbid: str) -> str:
    shutil.copy(ROOT / "conftest.py", folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  gpu\n  data\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder],
        env={**os.environ, "FORBID_SKIPS": forbid},
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
    )
    return done.stdout


def test_a_skip_fails_where_skips_are_forbidden_unless_a_device_or_data_is_wanting(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_it.py").write_text(SKIPPING)
    assert "3 skipped, 1 xfailed" in outcome(tmp_path, "")
    forbidden = outcome(tmp_path, "1")
    assert "1 failed, 2 skipped, 1 xfailed" in forbidden
    assert "a library is missing" in forbidden


def test_a_module_that_skips_itself_fails_where_skips_are_forbidden(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import pytest\npytest.importorskip('no_such_package')\n")
    assert "1 error" in outcome(tmp_path, "1")
    assert "1 skipped" in outcome(tmp_path, "0")


@pytest.mark.parametrize("failing", ["faults", "text"])
def test_all_tests_are_run_and_fail_if_one_of_either_process_does(failing: str, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "tests", tmp_path / "tools")
    folders = ("gateway", "faults", "cli", "bench", "benchmarks", "text")
    for name in folders:
        file = tmp_path / "tests" / name / f"test_{name}.py"
        file.parent.mkdir(parents=True)
        file.write_text(f"def test_in_{name}(): assert {name != failing}\n")
    done = subprocess.run(
        [tmp_path / "tools" / "tests", sys.executable], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert all(f"test_{name}.py" in done.stdout for name in folders)
    assert f"FAILED tests/{failing}/test_{failing}.py" in done.stdout
