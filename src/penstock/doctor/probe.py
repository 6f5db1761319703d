"""The part that needs torch, as a process of its own: `python -m penstock.doctor.probe`.

Reads {"models": [path, ...]} from standard input and prints one JSON object. Whatever torch does when
it is imported - fail, print, crash - happens here, and the parent lives to tell.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError


def main() -> None:
    asked = json.load(sys.stdin)
    answer: dict[str, Any] = {}
    try:
        answer["torch"] = _torch()
    except Exception as error:  # a broken installation raises what it likes
        answer["error"] = _sentence(error)
    else:
        answer["gpus"], answer["gpu_error"] = _gpus()
        answer["kernels"] = _kernels()
        answer["models"] = {path: _model(path) for path in asked["models"]}
    sys.stdout.write("\n" + json.dumps(answer))


def _torch() -> dict[str, Any]:
    import torch

    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "onednn": torch.backends.mkldnn.is_available(),
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def _gpus() -> tuple[list[dict[str, Any]], str | None]:
    import torch

    found = []
    try:
        for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
            properties = torch.cuda.get_device_properties(index)
            free, total = torch.cuda.mem_get_info(index)
            capability = f"{properties.major}.{properties.minor}"
            found.append(
                {
                    "name": properties.name,
                    "capability": capability,
                    "memory_total": total,
                    "memory_free": free,
                }
            )
    except Exception as error:  # the driver's word, whatever it is
        return found, _sentence(error)
    return found, None


def _kernels() -> bool:
    """Whether the native kernels can be loaded. A damaged file may end the process, so here."""
    from penstock.engine.native.library import library

    return library() is not None


def _model(path: str) -> dict[str, Any]:
    """What the engine makes of a model before it loads anything, or why it would refuse it."""
    try:
        return _encoder(Path(path)) or _decoder(path)
    except PenstockError as error:
        return {"refusal": str(error)}
    except Exception as error:  # a defect of ours, which the user still should read as one sentence
        return {"refusal": f"The engine cannot read it: {_sentence(error)}"}


def _encoder(path: Path) -> dict[str, Any] | None:
    from penstock.engine.encode.weights import is_encoder, open_weights
    from penstock.engine.pooling import longest_input

    if not is_encoder(path):
        return None
    config = open_weights(path).config
    return {
        "task": "score" if config.scores else "embed",
        "architecture": config.architecture,
        "kv_per_token": 0,
        "context": min(longest_input(path) or config.context_length, config.context_length),
    }


def _decoder(path: str) -> dict[str, Any]:
    import torch

    from penstock.engine.models.loader import check_tensors
    from penstock.engine.models.weights import open_weights
    from penstock.engine.native.loading import why_not

    weights = open_weights(path)
    check_tensors(weights)
    return {
        "task": "generate" if weights.config.has_head else "embed",
        "architecture": weights.config.architecture,
        "kv_per_token": weights.config.kv_bytes_per_token(1),
        "context": weights.config.context_length,
        "int8": why_not(weights.config, torch.device("cpu")) is None,
    }


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}." if lines else f"{type(error).__name__}."


if __name__ == "__main__":
    main()
