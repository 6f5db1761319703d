"""Compiles the native kernels with the system's C compiler, once for each family of processors.

Needs nothing but Python: `python -m penstock.engine.native.build`, and at install by the build hook.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "source"
# Variants, best first, with the processor's flags that each needs as /proc/cpuinfo has them.
VARIANTS: dict[str, tuple[str, ...]] = {
    "avx512vnni": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "fma", "f16c"),
    "avx2": ("avx2", "fma", "f16c"),
}
_FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-pthread", "-fno-math-errno", "-fvisibility=hidden")
# Rounding must not depend on what a compiler thinks best in one loop or another.
_EXACT = ("-ffp-contract=off",)
_SECONDS = 300


def has_kernels() -> bool:
    """Whether there are any for this kind of machine."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")


def library_path(variant: str, folder: Path | None = None) -> Path:
    return (folder or HERE / "lib") / f"kernels-{variant}.so"


def fingerprint() -> str:
    """Of what libraries are built from: one that was built from something else is built again."""
    digest = hashlib.sha256(repr((VARIANTS, _FLAGS, _EXACT)).encode())
    for file in sorted((*SOURCE.glob("*.c"), *SOURCE.glob("*.h"))):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def mark(path: Path) -> str:
    """What is kept beside a library: what it was built from, and what came of it. Half a library would end
    the process that loads it."""
    return f"{fingerprint()} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


def is_current(variant: str, folder: Path | None = None) -> bool:
    """Whether the library is there, undamaged, and built from the sources that are there."""
    path = library_path(variant, folder)
    try:
        return path.with_suffix(".sources").read_bytes() == mark(path).encode()
    except OSError:
        return False


def build(folder: Path | None = None) -> list[Path]:
    """Build whatever is not up to date; the libraries there are then. What cannot be built is said."""
    built, reasons = [], []
    for variant in VARIANTS:
        path = library_path(variant, folder)
        reason = None if is_current(variant, folder) else _compile(variant, path)
        if reason is None:
            built.append(path)
        else:
            reasons.append(reason)
    for reason in dict.fromkeys(reasons):
        print(f"Native kernels were not built: {reason}. The engine works without, slower.", file=sys.stderr)  # noqa: T201
    return built


def _compile(variant: str, path: Path) -> str | None:
    """Why it could not be."""
    if not has_kernels():
        return f"there are none for {platform.machine()} on {sys.platform}"
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        return "there is no C compiler (cc, gcc or clang)"
    # Under another name first: a process may have the old one open, another may build at once.
    scratch = path.with_suffix(f".{os.getpid()}")
    machine = [f"-m{flag.replace('avx512_vnni', 'avx512vnni')}" for flag in VARIANTS[variant]]
    sources = sorted(str(file) for file in SOURCE.glob("*.c"))
    command = [*compiler.split(), *_FLAGS, *_EXACT, *machine, "-o", str(scratch), *sources, "-lm"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode:
            return f"{compiler} failed: {done.stderr.strip()[-2000:]}"
        scratch.replace(path)
        path.with_suffix(".sources").write_text(mark(path))
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        scratch.unlink(missing_ok=True)
    return None


if __name__ == "__main__":
    found = build()
    for built_path in found:
        print(built_path)  # noqa: T201
    sys.exit(0 if found else 1)
