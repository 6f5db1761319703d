"""Vectors and scores against transformers' own models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.encode.encoders import core, encode, random_texts, save

KINDS = ("Bert", "Roberta", "XLMRoberta")
# The largest difference anywhere in a vector whose values are of the order of 1.
TOLERANCE = 1e-4


def hidden(model: torch.nn.Module, ids: list[int], segments: list[int] | None = None) -> torch.Tensor:
    with torch.no_grad():
        kinds = torch.tensor([segments or [0] * len(ids)])
        return model(input_ids=torch.tensor([ids]), token_type_ids=kinds).last_hidden_state[0]


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_transformers(kind: str, pooling: str, tmp_path: Path) -> None:
    reference = save(tmp_path, kind)
    texts = random_texts(12)
    found = encode(core(tmp_path), texts, pooling)  # type: ignore[arg-type]
    for name, ids in texts.items():
        states = hidden(reference, ids)
        expected = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling]
        assert np.abs(found[name] - expected.numpy()).max() <= TOLERANCE


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_every_activation_is_that_of_transformers(activation: str, tmp_path: Path) -> None:
    reference = save(tmp_path, "Bert", hidden_act=activation)
    texts = random_texts(4)
    found = encode(core(tmp_path), texts)
    for name, ids in texts.items():
        assert np.abs(found[name] - hidden(reference, ids).mean(0).numpy()).max() <= TOLERANCE


def test_the_second_text_of_a_pair_is_told_by_its_segments(tmp_path: Path) -> None:
    reference = save(tmp_path, "Bert")
    ids, segments = [7, 8, 9, 10, 11], [0, 0, 0, 1, 1]
    engine = core(tmp_path)
    found = encode(engine, {"pair": ids}, segments={"pair": segments})["pair"]
    assert np.abs(found - hidden(reference, ids, segments).mean(0).numpy()).max() <= TOLERANCE
    assert np.abs(found - encode(engine, {"plain": ids})["plain"]).max() > 0.01


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", [None, "torch.nn.modules.linear.Identity"])
def test_a_classifier_head_gives_the_score_of_a_pair(
    kind: str, activation: str | None, tmp_path: Path
) -> None:
    extra = {"sentence_transformers": {"activation_fn": activation}} if activation else {}
    reference = save(tmp_path, kind, "ForSequenceClassification", num_labels=1, **extra)
    texts = random_texts(6)
    found = encode(core(tmp_path), texts, "score")
    for name, ids in texts.items():
        with torch.no_grad():
            logit = reference(input_ids=torch.tensor([ids])).logits[0, 0]
        expected = logit if activation else torch.sigmoid(logit)
        assert found[name].shape == (1,)
        assert abs(found[name][0] - float(expected)) <= TOLERANCE


def test_the_encoder_inside_a_masked_language_model_is_used(tmp_path: Path) -> None:
    reference = save(tmp_path, "Bert", "ForMaskedLM").bert
    texts = random_texts(3)
    found = encode(core(tmp_path), texts)
    for name, ids in texts.items():
        assert np.abs(found[name] - hidden(reference, ids).mean(0).numpy()).max() <= TOLERANCE


def test_half_precision_files_are_computed_in_float32_on_the_cpu(tmp_path: Path) -> None:
    reference = save(tmp_path, "Bert")
    reference.half().save_pretrained(tmp_path)
    engine = core(tmp_path)
    assert engine.info.precision == "float32"
    found = encode(engine, {"text": [5, 6, 7]})["text"]
    assert np.abs(found - hidden(reference.float(), [5, 6, 7]).mean(0).numpy()).max() <= TOLERANCE


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_gives_the_same_vectors(kind: str, tmp_path: Path) -> None:
    save(tmp_path, kind)
    texts = random_texts(12)
    here = encode(core(tmp_path), texts)
    there = encode(core(tmp_path, device="cuda", precision="float32"), texts)
    assert max(np.abs(here[name] - there[name]).max() for name in texts) <= 1e-3
