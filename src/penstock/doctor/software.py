"""Python, torch, GPUs as torch sees them, packages and compilers."""

from __future__ import annotations

import json
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.doctor.ask import Gpu, Probe
from penstock.doctor.finding import Finding, Status, gib, listed
from penstock.doctor.hardware import Machine

SECTION = "Software"
EXTRAS = {"hub": ("huggingface_hub", "fetching models by their hub id")}  # beside `engine`, which is torch
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BOUND = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)")
_COMPILERS = {
    "cc": "it builds the native kernels",
    "nvcc": "it builds CUDA kernels",
    "triton": "it compiles GPU kernels written in Python",
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One line of the package's metadata."""

    package: str
    bounds: tuple[tuple[str, str], ...]  # ((">=", "2.11"), ("<", "2.14"))
    extra: str | None
    installed: str | None  # version

    @property
    def met(self) -> bool:
        return self.installed is not None and all(_holds(self.installed, *bound) for bound in self.bounds)


def look_at_packages() -> list[Requirement]:
    """What the installed Penstock asks for; nothing where it runs from a folder without being installed."""
    try:
        lines = metadata.requires("penstock") or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for line in lines:
        wanted, _, marker = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        name = _NAME.match(wanted.strip())
        if name is not None:
            bounds = tuple(_BOUND.findall(wanted))
            found.append(Requirement(name[0], bounds, extra[1] if extra else None, _version(name[0])))
    return found


def look_at_compilers() -> dict[str, str | None]:
    """Where each is; for Triton, its version."""
    return {"cc": shutil.which("cc"), "nvcc": shutil.which("nvcc"), "triton": _version("triton")}


def judge_software(
    probe: Probe,
    packages: Sequence[Requirement],
    compilers: dict[str, str | None],
    driver: Sequence[Gpu],
    machine: Machine,
    threads: int | None,
) -> list[Finding]:
    python = f"Python {platform.python_version()} at {sys.executable}."
    return [
        Finding(SECTION, "python", "ok", python),
        *_packages(packages),
        _torch(probe, packages),
        *_threads(probe, machine, threads),
        _gpus(probe, driver),
        *_extras(),
        _compilers(compilers),
    ]


def install_command(extra: str, *, folder: Path | None = None) -> str:
    """What to type to get one of the extras, from a clone or from the package index."""
    folder = folder or _clone()
    if folder is None:
        return f"{_pip()} install 'penstock[{extra}]'"
    constraints = folder / "constraints.txt"
    pinned = f"-c {shlex.quote(str(constraints))} " if constraints.is_file() else ""
    return f"{_pip()} install {pinned}-e {shlex.quote(f'{folder}[{extra}]')}"


def _packages(packages: Sequence[Requirement]) -> list[Finding]:
    core = [package for package in packages if package.extra is None]
    if not core:
        return []
    missing = [package for package in core if package.installed is None]
    other = [package for package in core if package.installed is not None and not package.met]
    if missing:
        names = listed([package.package for package in missing])
        repair = f"{_pip()} install {' '.join(shlex.quote(_wanted(package)) for package in missing)}"
        sentence = (
            f"{names} {'is' if len(missing) == 1 else 'are'} missing, and Penstock cannot serve without."
        )
        return [Finding(SECTION, "packages", "problem", sentence, repair)]
    if other:
        names = listed([f"{package.package} {package.installed}" for package in other])
        repair = f"{_pip()} install {' '.join(shlex.quote(_wanted(package)) for package in other)}"
        return [
            Finding(SECTION, "packages", "warning", f"Not versions Penstock was made for: {names}.", repair)
        ]
    return [Finding(SECTION, "packages", "ok", f"All {len(core)} packages of the front door are there.")]


def _torch(probe: Probe, packages: Sequence[Requirement]) -> Finding:
    if probe.torch is None and probe.error is None:
        sentence = "torch is not installed, and without it no model runs here: only the front door would."
        return Finding(SECTION, "torch", "problem", sentence, install_command("engine"))
    if probe.torch is None:
        version = (_version("torch") or "").partition("+")[0]
        repair = f"{_pip()} install --force-reinstall torch{f'=={version}' if version else ''}"
        return Finding(SECTION, "torch", "problem", f"torch is installed, but broken. {probe.error}", repair)
    torch = probe.torch
    build = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.rocm}" if torch.rocm else "CPU"
    onednn = "oneDNN" if torch.onednn else "no oneDNN, so matrix products are slower"
    sentence = (
        f"torch {torch.version} ({build} build), {torch.kernels} kernels, {onednn}, {torch.threads} threads."
    )
    for package in packages:
        if package.package == "torch" and not package.met:
            wanted = _wanted(package)
            sentence += f" Penstock was made for {wanted}."
            return Finding(SECTION, "torch", "warning", sentence, f"{_pip()} install {shlex.quote(wanted)}")
    return Finding(SECTION, "torch", "ok" if torch.onednn else "warning", sentence)


def _threads(probe: Probe, machine: Machine, threads: int | None) -> list[Finding]:
    """Threads beyond the CPUs take each other's time; most of all under a container's quota."""
    if probe.torch is None:
        return []
    usable = machine.cpus_usable
    if threads is None or threads <= usable:  # the engine itself starts no more than these
        return []
    some = "1 CPU" if usable == 1 else f"{usable} CPUs"
    sentence = f"The engine would start {threads} threads, and this process has {some} for them."
    return [Finding(SECTION, "threads", "warning", sentence, f"export PENSTOCK_THREADS={usable}")]


def _gpus(probe: Probe, driver: Sequence[Gpu]) -> Finding:
    if probe.gpus:
        names = listed(
            [
                f"{gpu.name} (compute capability {gpu.capability}, {gib(gpu.memory_free)} of "
                f"{gib(gpu.memory_total)} free)"
                for gpu in probe.gpus
            ]
        )
        return Finding(SECTION, "GPUs", "ok", f"{names}.")
    if probe.gpu_error is not None:
        sentence = f"torch sees a GPU and cannot use it: {probe.gpu_error}"
        return Finding(SECTION, "GPUs", "warning", sentence, "penstock serve --device cpu")
    if driver:
        names = listed([gpu.name for gpu in driver])
        if probe.torch is not None and probe.torch.cuda is None:
            version = probe.torch.version.partition("+")[0]
            sentence = (
                f"The driver has {names}, but this torch is a CPU build: models run on the CPU until a CUDA "
                "build replaces it, and its version may have to follow the driver's."
            )
            return Finding(
                SECTION, "GPUs", "warning", sentence, f"{_pip()} install --force-reinstall torch=={version}"
            )
        reason = "torch does not see it" if probe.torch is not None else "there is no torch that works"
        sentence = (
            f"The driver has {names}, but {reason}: check CUDA_VISIBLE_DEVICES, and the driver's version."
        )
        return Finding(SECTION, "GPUs", "warning", sentence, "nvidia-smi")
    return Finding(SECTION, "GPUs", "ok", "None found: models run on the CPU.")


def _extras() -> list[Finding]:
    found = []
    for extra, (package, purpose) in EXTRAS.items():
        version = _version(package)
        if version is None:
            sentence = f"{package} is not installed; {purpose} needs it."
            found.append(Finding(SECTION, extra, "note", sentence, install_command(extra)))
        else:
            found.append(Finding(SECTION, extra, "ok", f"{package} {version}, for {purpose}."))
    return found


def _compilers(compilers: dict[str, str | None]) -> Finding:
    there = [f"{name} {place}" for name, place in compilers.items() if place]
    missing = [f"{name} ({_COMPILERS[name]})" for name, place in compilers.items() if not place]
    sentence = f"Found {listed(there)}. " if there else ""
    sentence += f"Not found: {listed(missing)}. " if missing else ""
    status: Status = "note" if missing else "ok"
    return Finding(
        SECTION, "compilers", status, f"{sentence}Penstock needs cc alone, for its native kernels."
    )


def _wanted(package: Requirement) -> str:
    return package.package + ",".join(
        f"{sign}{number}" for sign, number in sorted(package.bounds, reverse=True)
    )


def _holds(version: str, sign: str, bound: str) -> bool:
    """Whether a release is within a bound, going by its leading numbers alone."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    if numbers is None:
        return True  # not a version we could judge
    ours, theirs = ([int(part) for part in text.split(".")] for text in (numbers[0], bound))
    length = max(len(ours), len(theirs))
    left, right = (parts + [0] * (length - len(parts)) for parts in (ours, theirs))
    return {
        ">=": left >= right,
        "<=": left <= right,
        "==": left == right,
        "!=": left != right,
        ">": left > right,
        "<": left < right,
    }[sign]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _pip() -> str:
    return f"{interpreter()} -m pip"


def interpreter() -> str:
    """What to type for the interpreter that runs this, however the shell finds it."""
    names = [name for name in ("python", "python3") if shutil.which(name) == sys.executable]
    return names[0] if names else shlex.quote(sys.executable)


def _clone() -> Path | None:
    """The folder of the sources where Penstock runs from a clone."""
    try:
        direct = metadata.distribution("penstock").read_text("direct_url.json")
        url = json.loads(direct)["url"] if direct else ""
    except (metadata.PackageNotFoundError, ValueError, KeyError):
        url = ""
    folder = Path(unquote(urlsplit(url).path)) if url.startswith("file://") else Path(__file__).parents[3]
    return folder if (folder / "pyproject.toml").is_file() else None
