"""The predictor `encoder`: what MiniLM makes of a query, the dense features beside it, and heads on top.

Some milliseconds slower than the light predictor. Its file holds plain arrays: the coefficients, a sample for
thresholds, and what it was trained on.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.aio.encoder import load_encoder
from penstock.aio.encoder_training import Doubt, Inputs, Trained, rated
from penstock.aio.features import FEATURES, features
from penstock.aio.heads import Head
from penstock.aio.predictor import CalibrationSample, Rating
from penstock.aio.query import Query
from penstock.aio.regions import region
from penstock.errors import ConfigError

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
SHIPPED: Final = Path(__file__).with_name("shipped") / "encoder.npz"
_FORMAT: Final = 1
_INPUTS: Final = ("embedding_mean", "feature_mean", "feature_scale", "topic_weights", "topic_intercepts")


@dataclass(frozen=True, slots=True)
class EncoderPredictor:
    """Rates queries with an encoder that is loaded when it is first needed."""

    trained: Trained
    sample: CalibrationSample
    trained_keys: frozenset[str]  # questions that must not be used to judge it
    trained_groups: frozenset[str]
    version: str
    embed: Embed
    name: str = "encoder"

    @property
    def references(self) -> tuple[str, ...]:
        return self.trained.models

    @property
    def heads(self) -> Mapping[str, Head]:
        return self.trained.heads

    def rate(self, query: Query, references: Sequence[str]) -> Rating:
        unknown = [name for name in references if name not in self.heads]
        if unknown:
            known = ", ".join(self.references)
            raise ConfigError(f"The encoder predictor does not know {unknown[0]!r}; it knows {known}.")
        embedded = self.embed([query.ask]).astype(np.float64)
        vectors, doubt = self.trained.vectors(embedded, features(query).astype(np.float64)[None])
        quality, deviation = rated(vectors, doubt, [self.heads[name] for name in references])
        return Rating(
            tuple(quality[0].tolist()),
            tuple(deviation[0].tolist()),
            region(query),
            vectors[0].astype(np.float32),
        )

    def refitted(self, heads: Mapping[str, Head], version: str) -> EncoderPredictor:
        """The same with other heads, which see the same vectors."""
        trained = replace(self.trained, heads={**self.trained.heads, **heads})
        return replace(self, trained=trained, version=version)


def save(predictor: EncoderPredictor, path: Path) -> None:
    """Write everything as plain arrays."""
    inputs, trained = predictor.trained.inputs, predictor.trained
    about = {
        "format": _FORMAT,
        "features": FEATURES,
        "embedding_scale": inputs.embedding_scale,
        "topics": inputs.topics,
        "models": trained.models,
        "doubt_rest": trained.doubt.rest,
        "doubt_noise": trained.doubt.noise,
        "sample_references": predictor.sample.references,
        "groups": sorted(predictor.trained_groups),
    }
    heads = [trained.heads[model] for model in trained.models]
    arrays: dict[str, NDArray[Any]] = {
        **{name: getattr(inputs, name).astype(np.float32) for name in _INPUTS},
        "weights": trained.weights.astype(np.float32),
        "intercepts": trained.intercepts.astype(np.float32),
        "doubt_centre": trained.doubt.centre.astype(np.float32),
        "doubt_familiar": trained.doubt.familiar.astype(np.float32),
        "head_coefficients": np.stack([head.coefficients for head in heads]),
        "head_intercepts": np.array([head.intercept for head in heads], np.float32),
        "head_covariances": np.stack([head.covariance for head in heads]),
        "sample_quality": predictor.sample.quality.astype(np.float16),
        "sample_ok": predictor.sample.ok.astype(np.float16),
        "sample_deviation": _deviation(predictor.sample).astype(np.float16),
        "keys": np.array(sorted(int(key, 16) for key in predictor.trained_keys), np.uint64),
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def load(path: Path = SHIPPED, embed: Embed | None = None) -> EncoderPredictor:
    """Read a file that `save` wrote; ConfigError says what is wrong with another."""
    try:
        content = path.read_bytes()
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(arrays["about"].tobytes())
        if about["format"] != _FORMAT or tuple(about["features"]) != FEATURES:
            raise ConfigError(f"{path} was trained for other features; train it again with this version.")
        inputs = Inputs(
            embedding_scale=float(about["embedding_scale"]),
            topics=tuple(about["topics"]),
            **{name: arrays[name].astype(np.float64) for name in _INPUTS},
        )
        models = tuple(about["models"])
        parts = zip(
            arrays["head_coefficients"], arrays["head_intercepts"], arrays["head_covariances"], strict=True
        )
        heads = dict(zip(models, (Head(a, float(b), c) for a, b, c in parts), strict=True))
        doubt = Doubt(
            arrays["doubt_centre"].astype(np.float64),
            arrays["doubt_familiar"].astype(np.float64),
            float(about["doubt_rest"]),
            float(about["doubt_noise"]),
        )
        weights, intercepts = arrays["weights"].astype(np.float64), arrays["intercepts"].astype(np.float64)
        trained = Trained(inputs, models, weights, intercepts, heads, doubt)
        sample = CalibrationSample(
            tuple(about["sample_references"]),
            arrays["sample_quality"].astype(np.float32),
            arrays["sample_ok"].astype(np.float32),
            arrays["sample_deviation"].astype(np.float32),
        )
        keys = frozenset(f"{key:016x}" for key in arrays["keys"].tolist())
    except OSError as error:
        raise ConfigError(f"The predictor {path} cannot be read: {error.strerror or error}.") from error
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path} is not an encoder predictor: {error}.") from error
    version = f"encoder-{hashlib.blake2b(content, digest_size=4).hexdigest()}"
    return EncoderPredictor(
        trained, sample, keys, frozenset(about["groups"]), version, embed or LazyEncoder()
    )


def _deviation(sample: CalibrationSample) -> NDArray[np.float32]:
    return sample.deviation if sample.deviation is not None else np.zeros_like(sample.quality)


class LazyEncoder:
    """The encoder, loaded with the first text: who only looks at a predictor need not have it."""

    def __init__(self) -> None:
        self._embed: Embed | None = None

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self._embed is None:
            self._embed = load_encoder().embed
        return self._embed(texts)
