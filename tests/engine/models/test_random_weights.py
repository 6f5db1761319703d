"""Random weights: a model's shapes without its files, the same numbers every time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.models.layout import Tensor
from penstock.engine.models.loader import build_decoder, checked_weights
from penstock.engine.models.random_weights import RandomWeights
from penstock.engine.models.weights import open_weights
from penstock.engine.request import Request, SamplingParams
from tests.engine.tiny import TINY, save_tiny_llama

CPU = torch.device("cpu")


@pytest.fixture
def described(tmp_path: Path) -> Path:
    """A folder with nothing but a description."""
    (tmp_path / "config.json").write_text(json.dumps(TINY | {"torch_dtype": "bfloat16"}))
    return tmp_path


def test_a_description_is_enough(described: Path) -> None:
    weights = checked_weights(described, random_on=CPU)
    decoder = build_decoder(weights, CPU, "float32")
    assert decoder.config == weights.config
    assert weights.dtype == torch.bfloat16


def test_shapes_are_those_of_the_files(tmp_path: Path) -> None:
    stored = open_weights(save_tiny_llama(tmp_path))
    weights = RandomWeights(tmp_path, CPU)
    assert weights.config == stored.config
    assert sorted(weights.shapes.values()) == sorted(stored.shapes.values())
    assert weights.read(Tensor("key", 1)).shape == stored.read(Tensor("key", 1)).shape


def test_two_loads_agree_and_no_two_tensors_do(described: Path) -> None:
    one, other = RandomWeights(described, CPU), RandomWeights(described, CPU)
    assert torch.equal(one.read(Tensor("gate", 0)), other.read(Tensor("gate", 0)))
    assert not torch.equal(one.read(Tensor("gate", 0)), one.read(Tensor("gate", 1)))
    assert not torch.equal(one.read(Tensor("gate", 0)), one.read(Tensor("up", 0)))


def test_numbers_are_of_a_sensible_size(described: Path) -> None:
    weights = RandomWeights(described, CPU)
    embedding, norm = weights.read(Tensor("embedding")).float(), weights.read(Tensor("mlp_norm", 0)).float()
    assert 0.018 < float(embedding.std()) < 0.022
    assert abs(float(embedding.mean())) < 0.001
    assert 0.9 < float(norm.mean()) < 1.1


@pytest.mark.parametrize("precision", ["float32", "auto"])
def test_an_engine_runs_on_them(described: Path, precision: str) -> None:
    def tokens() -> list[int]:
        config = EngineConfig(
            model=str(described), load_format="random", device="cpu", precision=precision, threads=1
        )
        core = EngineCore(config)
        params = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)
        core.submit(Request(id="a", prompt=[1, 2, 3], params=params))
        made: list[int] = []
        while core.has_work:
            for event in core.step():
                assert event.error is None
                made += event.token_ids
        return made

    first = tokens()
    assert len(first) == 5
    assert tokens() == first
