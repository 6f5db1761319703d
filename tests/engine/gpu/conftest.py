"""Where there is no GPU, Triton interprets its kernels on the CPU: slow, so shapes are small."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
HERE = Path(__file__).parent

if not HAS_GPU:
    # Read when a kernel is declared and when it is launched: before any module of kernels is imported.
    os.environ["TRITON_INTERPRET"] = "1"

if not HAS_GPU and importlib.util.find_spec("triton") is not None:
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch_index(tensor: Any, scope: Any) -> None:
        """Scalars that bound a loop are arrays of one element there, which numpy 2.4 turns into no int."""
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_index
    convert_float = interpreter._convert_float

    def convert(values: Any, source: Any, target: Any, rounding: Any) -> Any:
        """It loses the carry of a mantissa that rounds up to the next power of two; torch does not."""
        if (source.name, target.name) != ("fp32", "fp8e4nv"):
            return convert_float(values, source, target, rounding)
        return torch.from_numpy(values.copy()).to(torch.float8_e4m3fn).view(torch.uint8).numpy()

    interpreter._convert_float = convert
    prepared = set()

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        """It prepares the language at each call of a function by a kernel, which takes most of the time; once
        is enough, for launching a kernel prepares all that is undone after it."""
        if self.fn not in prepared:
            interpreter._patch_lang(self.fn)
            prepared.add(self.fn)
        return self.rewrite()(*args, **kwargs)

    interpreter.InterpretedFunction.__call__ = call


class WithoutTriton(pytest.Module):
    def collect(self) -> Iterable[pytest.Item]:
        pytest.skip("Triton is not installed.")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if importlib.util.find_spec("triton") is not None:
        return None  # as usual
    return WithoutTriton.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    no_gpu = pytest.mark.skip(reason="There is no GPU.")
    # A GPU makes infinities and what is not a number without a word; numpy, which interprets, warns.
    quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(quiet)
        if not HAS_GPU and item.get_closest_marker("gpu") is not None:
            item.add_marker(no_gpu)


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if HAS_GPU else "cpu")
