"""A trained predictor as a file of plain arrays: coefficients, a sample for thresholds, what it has seen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.aio.array_file import DAMAGED, Arrays, arrays_of, read_content
from penstock.aio.features import FEATURES
from penstock.aio.fitting import Doubt, Inputs, Trained
from penstock.aio.heads import Head
from penstock.aio.learned import TEXTS, Family, Gate, LazyText, LearnedPredictor, joint_heads
from penstock.aio.predictor import CalibrationSample
from penstock.errors import ConfigError

SHIPPED: Final = Path(__file__).with_name("shipped")
_FORMAT: Final = 1
_INPUTS: Final = ("embedding_mean", "feature_mean", "feature_scale", "topic_weights", "topic_intercepts")
_GATE: Final = ("mean", "scale", "weights", "intercepts")


def save(predictor: LearnedPredictor, path: Path) -> None:
    """Write it; what was learnt from verdicts later is not in the file but in the store."""
    about = {
        "format": _FORMAT,
        "text": predictor.name,
        "features": FEATURES,
        "families": [_about(family) for family in predictor.families],
        "sample": predictor.sample.references,
        "groups": sorted(predictor.trained_groups),
    }
    sample = predictor.sample
    arrays: Arrays = {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        "keys": np.array(sorted(int(key, 16) for key in predictor.trained_keys), np.uint64),
        "sample_quality": sample.quality.astype(np.float16),
        "sample_ok": sample.ok.astype(np.float16),
        **({} if sample.deviation is None else {"sample_deviation": sample.deviation.astype(np.float16)}),
        **{f"gate_{name}": getattr(predictor.gate, name).astype(np.float32) for name in _GATE},
    }
    for number, family in enumerate(predictor.families):
        arrays |= {f"{number}_{name}": array for name, array in _arrays(family.trained).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load(path: Path) -> LearnedPredictor:
    """Read what `save` wrote; ConfigError says what is wrong with another file."""
    try:
        content = read_content(path)
        arrays = arrays_of(content)
        about = json.loads(arrays["about"].tobytes())
        if about["format"] != _FORMAT or tuple(about["features"]) != FEATURES or about["text"] not in TEXTS:
            raise ConfigError(f"{path} was trained for another version; train it again with this one.")
        families = tuple(
            Family(each["name"], _trained(each, arrays, f"{number}_"))
            for number, each in enumerate(about["families"])
        )
        deviation = arrays.get("sample_deviation")
        return LearnedPredictor(
            name=about["text"],
            version=f"{about['text']}-{hashlib.blake2b(content, digest_size=4).hexdigest()}",
            families=families,
            gate=Gate(*(arrays[f"gate_{name}"].astype(np.float64) for name in _GATE)),
            heads=joint_heads(families),
            sample=CalibrationSample(
                tuple(about["sample"]),
                arrays["sample_quality"].astype(np.float32),
                arrays["sample_ok"].astype(np.float32),
                None if deviation is None else deviation.astype(np.float32),
            ),
            trained_keys=frozenset(f"{key:016x}" for key in arrays["keys"].tolist()),
            trained_groups=frozenset(about["groups"]),
            embed=LazyText(about["text"]),
        )
    except OSError as error:
        raise ConfigError(f"The predictor {path} cannot be read: {error.strerror or error}.") from error
    except DAMAGED as error:
        said = str(error).rstrip(".") or "it ends too early"
        raise ConfigError(f"{path} is not a predictor that 'penstock route train' made: {said}.") from error


def _about(family: Family) -> dict[str, Any]:
    trained = family.trained
    return {
        "name": family.name,
        "models": trained.models,
        "topics": trained.inputs.topics,
        "embedding_scale": trained.inputs.embedding_scale,
        "doubt_rest": trained.doubt.rest,
        "doubt_noise": trained.doubt.noise,
    }


def _arrays(trained: Trained) -> Arrays:
    heads = [trained.heads[model] for model in trained.models]
    found: Arrays = {
        **{name: getattr(trained.inputs, name) for name in _INPUTS},
        "weights": trained.weights,
        "intercepts": trained.intercepts,
        "doubt_centre": trained.doubt.centre,
        "doubt_familiar": trained.doubt.familiar,
        "head_coefficients": np.stack([head.coefficients for head in heads]),
        "head_intercepts": np.array([head.intercept for head in heads]),
        "head_covariances": np.stack([head.covariance for head in heads]),
    }
    return {name: array.astype(np.float32) for name, array in found.items()}


def _trained(about: dict[str, Any], arrays: Arrays, prefix: str) -> Trained:
    def read(name: str) -> NDArray[np.float64]:
        return arrays[prefix + name].astype(np.float64)

    models = tuple(about["models"])
    parts = zip(
        arrays[f"{prefix}head_coefficients"],
        arrays[f"{prefix}head_intercepts"],
        arrays[f"{prefix}head_covariances"],
        strict=True,
    )
    heads = dict(zip(models, (Head(a, float(b), c) for a, b, c in parts), strict=True))
    inputs = Inputs(
        embedding_scale=float(about["embedding_scale"]),
        topics=tuple(about["topics"]),
        **{name: read(name) for name in _INPUTS},
    )
    doubt = Doubt(
        read("doubt_centre"),
        read("doubt_familiar"),
        float(about["doubt_rest"]),
        float(about["doubt_noise"]),
    )
    return Trained(inputs, models, read("weights"), read("intercepts"), heads, doubt)
