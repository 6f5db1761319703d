"""GGUF models in several files, which know each other by their names: `name-00001-of-00003.gguf`."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"-(\d{5})-of-(\d{5})(\.gguf)$", re.IGNORECASE)


def split_name(path: Path) -> tuple[str, int] | None:
    """Of a file that is one part of several: the name without it, and which part it is."""
    found = _NAME.search(path.name)
    return None if found is None else (path.name[: found.start()] + found[3], int(found[1]))


def stands_for_model(path: Path) -> bool:
    """Whether it is a model's only file, or the first of several."""
    name = split_name(path)
    return name is None or name[1] == 1


def all_parts(path: Path) -> list[Path]:
    """Where the parts of a model would be, this one among them; the file alone if it is not split."""
    found = _NAME.search(path.name)
    if found is None:
        return [path]
    stem, count = path.name[: found.start()], int(found[2])
    return [path.with_name(f"{stem}-{number:05d}-of-{found[2]}{found[3]}") for number in range(1, count + 1)]
