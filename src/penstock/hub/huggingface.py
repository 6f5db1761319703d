"""Models from a Hugging Face hub, through the optional `huggingface_hub` package.

Only weights that cannot run code and the text files beside them are fetched. The package's own
settings hold: HF_HOME, HF_HUB_OFFLINE, HF_ENDPOINT, HF_TOKEN. Its cache is used, not ours.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import ModelError
from penstock.hub.files import ModelFiles, Progress
from penstock.hub.local import PICKLE_SUFFIXES, open_path, refuse_pickle
from penstock.hub.regular import read_regular
from penstock.hub.split import split_name
from penstock.hub.watch import watched

# What lies in sub-folders is other formats of the same model, but for how an encoder's states are pooled.
_WANTED = re.compile(
    r"(?!consolidated)[^/]+\.(?:safetensors|json|jinja)|tokenizer\.model|\d+_Pooling/config\.json"
)


def fetch(repo: str, revision: str | None, file: str | None, progress: Progress | None) -> ModelFiles:
    """The repository's safetensors, or one GGUF of it, downloaded unless the hub's cache has them."""
    if file is not None:
        refuse_pickle(file)
        if not file.lower().endswith(".gguf"):
            raise ModelError(
                f"{repo}:{file} names a file that is not a GGUF; give {repo!r} to use its safetensors."
            )
    library = _library(repo)
    with _sentences(library, repo, revision):
        if library.constants.HF_HUB_OFFLINE:
            path = _cached(library, repo, revision, file)
            if path is None:
                raise ModelError(
                    f"{_named(repo, revision, file)} is not in the hub's cache, and HF_HUB_OFFLINE forbids "
                    "to download it; unset that, or give a local model."
                )
        else:
            path = _download(library, repo, revision, file, progress)
    return replace(open_path(path), name=repo)


def _download(
    library: Any, repo: str, revision: str | None, file: str | None, progress: Progress | None
) -> Path:
    try:
        sizes = _sizes(library, repo, revision)
    except Exception as error:
        # What was fetched before is used when the hub is away; what the hub refuses is not.
        cached = _cached(library, repo, revision, file)
        if cached is None or isinstance(error, library.errors.HfHubHTTPError):
            raise
        return cached
    chosen = file or _choose(repo, sizes)
    cache = Path(library.constants.HF_HUB_CACHE) / library.file_download.repo_folder_name(
        repo_id=repo, repo_type="model"
    )
    library.utils.disable_progress_bars()
    if chosen is not None:
        with watched(cache, f"Downloading {repo}:{chosen}", sizes.get(chosen), progress):
            return Path(library.hf_hub_download(repo, chosen, revision=revision))
    wanted = [name for name in sizes if _WANTED.fullmatch(name)]
    total = sum(sizes[name] for name in wanted)
    patterns = [glob.escape(name) for name in wanted]
    with watched(cache, f"Downloading {repo}", total, progress):
        return Path(library.snapshot_download(repo, revision=revision, allow_patterns=patterns))


def _sizes(library: Any, repo: str, revision: str | None) -> dict[str, int]:
    """The repository's files and their bytes."""
    info = library.HfApi().model_info(repo, revision=revision, files_metadata=True)
    return {entry.rfilename: entry.size or 0 for entry in info.siblings or ()}


def _choose(repo: str, sizes: dict[str, int]) -> str | None:
    """None for the safetensors of the repository, or the one GGUF that it holds."""
    names = sorted(sizes)
    if any(name.endswith(".safetensors") and "/" not in name for name in names):
        if "config.json" not in sizes:
            raise ModelError(
                f"The hub's {repo} has safetensors but no config.json, so it is not a whole model."
            )
        return None
    ggufs = [name for name in names if name.lower().endswith(".gguf")]
    whole = [name for name in ggufs if split_name(Path(name)) is None]
    if len(whole) == 1:
        return whole[0]
    if whole:
        shown = ", ".join(f"{repo}:{name}" for name in whole[:12])
        raise ModelError(f"The hub's {repo} holds {len(whole)} GGUF files; give one of them: {shown}.")
    if ggufs:
        raise ModelError(
            f"The hub's {repo} holds only split GGUF files, which Penstock does not fetch; download all "
            "parts of one model into a folder and give the first of them."
        )
    for name in names:
        if Path(name).suffix.lower() in PICKLE_SUFFIXES:
            refuse_pickle(f"{repo}:{name}")
    raise ModelError(f"The hub's {repo} holds neither safetensors nor GGUF files.")


def _cached(library: Any, repo: str, revision: str | None, file: str | None) -> Path | None:
    """What earlier downloads left, by the cache's documented layout."""
    name = library.file_download.repo_folder_name(repo_id=repo, repo_type="model")
    root = Path(library.constants.HF_HUB_CACHE) / name
    commit = revision or "main"
    with suppress(OSError):  # a full commit hash has no ref
        commit = read_regular(root / "refs" / commit).decode("utf-8").strip()
    path = root / "snapshots" / commit / (file or "")
    return path if path.exists() else None


def _library(repo: str) -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.file_download
        import huggingface_hub.utils
    except ImportError:
        raise ModelError(
            f"{repo!r} is a hub id (there is no such local path), and fetching it needs the huggingface_hub "
            "package: run `pip install 'penstock[hub]'`, or give a local model."
        ) from None
    return huggingface_hub


@contextmanager
def _sentences(library: Any, repo: str, revision: str | None) -> Iterator[None]:
    """The package's exceptions, whose texts run over many lines, as one sentence each."""
    errors = library.errors
    try:
        yield
    except ModelError:
        raise
    except errors.GatedRepoError:
        raise ModelError(
            f"The hub's {repo} is gated: accept its terms on its page, then set HF_TOKEN."
        ) from None
    except errors.RepositoryNotFoundError:
        raise ModelError(
            f"There is no model {repo!r} on the hub (nor a local path of that name), or it is private; "
            "check the spelling, or set HF_TOKEN."
        ) from None
    except errors.RevisionNotFoundError:
        raise ModelError(f"The hub's {repo} has no revision {revision!r}.") from None
    except errors.EntryNotFoundError as error:
        raise ModelError(f"The hub's {repo} lacks a file that was asked for: {_first_line(error)}.") from None
    except Exception as error:  # its network stack raises what it likes, and differs between versions
        raise ModelError(
            f"Cannot fetch {repo} from the hub: {_first_line(error)}. "
            "Check the network, or give a local model."
        ) from None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__


def _named(repo: str, revision: str | None, file: str | None) -> str:
    return repo + (f"@{revision}" if revision else "") + (f":{file}" if file else "")
