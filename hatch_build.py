"""Builds the native kernels while Penstock is installed, where there is a C compiler; else does without.

An editable install finds them in the source tree, where they are built. A wheel takes them along and is then
for this platform only; it is for any Python, which loads them by ctypes.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = "src/penstock/engine/native"


class KernelsHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        libraries = _build(Path(self.root) / NATIVE / "build.py")
        if version == "editable" or not libraries:
            return
        # Git ignores what was built, so the wheel would leave it out.
        folders = {library.parent.relative_to(self.root).as_posix() for library in libraries}
        build_data["artifacts"] += [f"{folder}/*" for folder in sorted(folders)]
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def _build(script: Path) -> list[Path]:
    """The libraries; none, with the reason printed, where they cannot be: it never fails an install."""
    try:
        spec = importlib.util.spec_from_file_location("penstock_native_build", script)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return [Path(library).resolve() for library in module.build()]
    except Exception as error:
        print(f"Native kernels were not built: {type(error).__name__}: {error}.", file=sys.stderr)
        return []
