"""Models that are on this machine already: found and listed, never fetched, with no package but this one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.errors import ModelError
from penstock.hub.files import ModelFiles, home
from penstock.hub.known import PACKAGED, packaged
from penstock.hub.local import open_path
from penstock.hub.regular import read_regular
from penstock.hub.resolve import hub_id, resolve
from penstock.hub.split import all_parts, stands_for_model


@dataclass(frozen=True, slots=True)
class CachedModel:
    """One model in a cache. `name` is what to type for it, `bytes` what it takes on the disk."""

    name: str
    path: Path
    bytes: int


def locate(model: str) -> ModelFiles | None:
    """The model if it is here, None if it would have to be fetched; ModelError as `resolve` has it."""
    ours = packaged(model)
    if ours is not None:
        return ours.files if ours.weights.is_file() else None
    match = hub_id(model)
    if match is None:
        return resolve(model)  # a path, or a mistake: nothing that is fetched
    root = hub_cache() / f"models--{match['repo'].replace('/', '--')}"
    snapshot = _snapshot(root, match["revision"] or "main")
    path = snapshot / (match["file"] or "") if snapshot is not None else None
    return replace(open_path(path), name=match["repo"]) if path is not None and path.exists() else None


def cached_models() -> list[CachedModel]:
    """What Penstock and the model hub's library have fetched, by name."""
    found = [*_own_cache(), *_hub_models()]
    return sorted(found, key=lambda model: model.name.lower())


def hub_cache() -> Path:
    """Where the hub's library keeps models: HF_HUB_CACHE, HF_HOME/hub, or a folder of the user's cache."""
    chosen = os.environ.get("HF_HUB_CACHE")
    if not chosen:
        general = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        chosen = os.path.join(os.environ.get("HF_HOME") or os.path.join(general, "huggingface"), "hub")
    return Path(os.path.expanduser(chosen))


def _own_cache() -> Iterator[CachedModel]:
    with suppress(OSError, ModelError):  # no cache yet, or no place for one
        ours = {model.path: model.names[0] for model in PACKAGED}
        for folder in sorted((home() / "models").iterdir()):
            if folder.is_dir():
                for path in _models_in(folder):
                    yield CachedModel(ours.get(path, str(path)), path, _bytes(path))


def _hub_models() -> Iterator[CachedModel]:
    with suppress(OSError):
        for root in sorted(hub_cache().glob("models--*--*")):
            repo = root.name.removeprefix("models--").replace("--", "/", 1)
            snapshot = _snapshot(root, "main")
            for path in _models_in(snapshot) if snapshot is not None else ():
                name = repo if path == snapshot else f"{repo}:{path.name}"
                yield CachedModel(name, path, _bytes(path))


def _models_in(folder: Path) -> list[Path]:
    """The folder itself if it holds safetensors, else the GGUF files in it."""
    names = sorted(entry.name for entry in folder.iterdir())
    if "config.json" in names and any(name.endswith(".safetensors") for name in names):
        return [folder]
    ggufs = [folder / name for name in names if name.lower().endswith(".gguf")]
    return [path for path in ggufs if stands_for_model(path)]


def _snapshot(root: Path, revision: str) -> Path | None:
    with suppress(OSError):  # a full commit hash has no ref
        revision = read_regular(root / "refs" / revision).decode("utf-8").strip()
    path = root / "snapshots" / revision
    return path if path.is_dir() else None


def _bytes(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else all_parts(path)
    return sum(file.stat().st_size for file in files if file.is_file())
