"""Published vocabularies with golden tokenizations, from a source package of llama.cpp's Python binding.

They are fetched once, with pip, into the folder where models are kept. PENSTOCK_VOCABULARIES names
a folder with more of them (ggml-vocab-*.gguf, each with .inp and .out beside it).
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from penstock.hub import ModelFiles
from penstock.hub.files import home
from penstock.hub.lock import locked
from penstock.text.tokenizer import Tokenizer

PACKAGE = "llama-cpp-python==0.3.16"
SHA256 = "34ed0f9bd9431af045bb63d9324ae620ad0536653740e9bb163a2e1fcb973be6"  # 51 MB
SEPARATOR = "\n__ggml_vocab_test__\n"


def folder() -> Path:
    """Where the vocabularies are; skips the test where they cannot be had."""
    target = home() / "vocabularies" / PACKAGE.replace("==", "-")
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / ".lock", lambda: None):
        if not target.is_dir():
            _fetch(target)
    return target


def further() -> Path:
    """Vocabularies that are too new for that package."""
    named = os.environ.get("PENSTOCK_VOCABULARIES")
    if not named:
        pytest.skip("PENSTOCK_VOCABULARIES names no folder of vocabularies.")
    return Path(named)


@functools.cache
def load(where: Path, name: str) -> Tokenizer:
    return Tokenizer.load(ModelFiles(name, where / f"ggml-vocab-{name}.gguf", "gguf"))


def golden(where: Path, name: str) -> list[tuple[str, list[int]]]:
    file = where / f"ggml-vocab-{name}.gguf"
    texts = Path(f"{file}.inp").read_text(encoding="utf-8").removesuffix(SEPARATOR).split(SEPARATOR)
    lines = Path(f"{file}.out").read_text(encoding="utf-8").splitlines()
    return [(text, [int(i) for i in line.split()]) for text, line in zip(texts, lines, strict=True)]


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        wanted = Path(temporary) / "requirements.txt"
        wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n", encoding="utf-8")
        name = PACKAGE.partition("==")[0]
        command = [
            sys.executable, "-P", "-m", "pip", "download", "--no-deps", f"--no-binary={name}", "--no-input",
            "--disable-pip-version-check", "--require-hashes", "-r", str(wanted), "--dest", temporary,
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            reason = (result.stderr.strip().splitlines() or ["pip failed"])[-1]
            pytest.skip(f"{PACKAGE}, which has the vocabularies, cannot be downloaded: {reason}")
        unpacked = Path(temporary) / "unpacked"
        unpacked.mkdir()
        with tarfile.open(next(Path(temporary).glob("*.tar.gz"))) as archive:
            for member in archive:
                base = Path(member.name).name
                if member.isfile() and base.startswith("ggml-vocab-"):
                    source = archive.extractfile(member)
                    assert source is not None
                    with source, (unpacked / base).open("wb") as sink:
                        shutil.copyfileobj(source, sink)
        os.replace(unpacked, target)
