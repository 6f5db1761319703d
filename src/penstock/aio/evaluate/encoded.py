"""Embeddings of evaluated questions, kept in a file: computing them takes minutes, reading them a moment."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock.aio.encoder import WIDTH, load_encoder
from penstock.hub.files import home

_BATCH = 32


class KeptEmbeddings:
    """Texts to vectors; what was computed once is read back. Half precision: a head cannot tell."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path if path is not None else home() / "evaluation" / "embeddings.npz"
        self._known: dict[str, NDArray[np.float16]] = {}
        with (
            contextlib.suppress(OSError, ValueError, KeyError),
            np.load(self._path, allow_pickle=False) as kept,
        ):
            self._known = dict(zip(kept["keys"].tolist(), kept["vectors"], strict=True))

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """[n, width], each of length 1 (nearly)."""
        keys = [
            hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest() for text in texts
        ]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        if missing:
            # By length: texts of a batch are padded to the longest.
            order = sorted(missing, key=lambda key: len(missing[key]))
            encoder = load_encoder()
            for start in range(0, len(order), _BATCH):
                batch = order[start : start + _BATCH]
                vectors = encoder.embed([missing[key] for key in batch]).astype(np.float16)
                self._known.update(zip(batch, vectors, strict=True))
            self._keep()
        if not keys:
            return np.empty((0, WIDTH), np.float32)
        return np.stack([self._known[key] for key in keys]).astype(np.float32)

    def _keep(self) -> None:
        # Another process may be writing its own: a whole file takes the place of a whole file.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part.npz")
            np.savez(part, keys=np.array(list(self._known)), vectors=np.stack(list(self._known.values())))
            part.replace(self._path)
