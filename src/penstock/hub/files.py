"""What a resolved model is, and where Penstock keeps the ones it fetched."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from penstock.errors import ModelError


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """One model on the local disk, checked to be of a format Penstock reads."""

    name: str  # what to serve it as unless told otherwise
    path: Path  # a GGUF file, or a folder with config.json and *.safetensors
    format: Literal["gguf", "safetensors"]

    @property
    def revision(self) -> str:
        """The commit of the hub that it is, as the hub's cache names its folders; empty: not known."""
        parts = self.path.parts
        at = parts.index("snapshots") + 1 if "snapshots" in parts else len(parts)
        return parts[at] if at < len(parts) else ""


class Progress(Protocol):
    """Called now and then while a model is fetched; must return quickly."""

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """`stage` is a short phrase; `done` and `total` are bytes, `total` None while unknown."""


def home() -> Path:
    """The cache folder: `PENSTOCK_HOME`, else `~/.cache/penstock`."""
    chosen = os.environ.get("PENSTOCK_HOME") or "~/.cache/penstock"
    try:
        return Path(chosen).expanduser().absolute()
    except RuntimeError:  # no home folder, as in some containers
        raise ModelError(
            f"The model cache {chosen} cannot be placed because there is no such home folder; "
            "set PENSTOCK_HOME to a folder you may write to."
        ) from None
