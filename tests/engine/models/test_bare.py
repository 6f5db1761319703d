"""Decoders saved without their output matrix, as models that are made for vectors are released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from penstock.doctor.probe import _decoder as doctors_opinion
from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.opening import open_core
from penstock.engine.request import Request, SamplingParams
from penstock.engine.vectors import vector
from penstock.errors import InvalidRequestError, ModelError
from tests.engine.models.families import FAMILIES, TYPICAL, edit_config, make, prompts_of


def save_bare(family: str, path: Path, *, last: bool = True, **overrides: Any) -> None:
    make(family, TYPICAL[family], **overrides).model.save_pretrained(path)
    if last:
        (path / "1_Pooling").mkdir()
        (path / "1_Pooling" / "config.json").write_text(
            json.dumps({"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True})
        )


def opened(path: Path, pooling: str = "auto") -> EngineCore:
    options = {"device": "cpu", "precision": "float32", "kv_cache_memory": 1 << 22}
    core = open_core(EngineConfig(model=str(path), pooling=pooling, **options))
    assert isinstance(core, EngineCore)
    return core


def vectors(core: EngineCore, prompts: list[list[int]]) -> list[Any]:
    for number, prompt in enumerate(prompts):
        core.submit(Request(id=str(number), prompt=prompt, pooling=core.info.pooling))
    found = {}
    while core.has_work:
        found |= {event.request_id: vector(event.embedding) for event in core.step()}
    return [found[str(number)] for number in range(len(prompts))]


def generate(core: EngineCore) -> list[int]:
    core.submit(Request(id="text", prompt=[5, 6], params=SamplingParams(max_tokens=3, temperature=0.0)))
    tokens: list[int] = []
    while core.has_work:
        tokens += [token for event in core.step() for token in event.token_ids]
    return tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_of_every_bare_family_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    save_bare(family, tmp_path, tie_word_embeddings=False)
    reference = transformers.AutoModel.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    assert not any(name.startswith("model.") for name in load_file(tmp_path / "model.safetensors"))
    core = opened(tmp_path)
    assert (core.info.pooling, core.info.tasks) == ("last", ("embed", "score"))
    prompts = prompts_of((1, 33, 130))
    for prompt, found in zip(prompts, vectors(core, prompts), strict=True):
        with torch.no_grad():
            expected = reference(torch.tensor([prompt])).last_hidden_state[0, -1].numpy()
        assert np.abs(found - expected).max() <= FAMILIES[family].tolerance


def test_a_causal_model_spelled_without_its_prefix_gives_the_same_vectors(tmp_path: Path) -> None:
    """Some are released so: the whole model's class, the bare model's tensors."""
    save_bare("qwen3", tmp_path, tie_word_embeddings=False)
    prompts = prompts_of((1, 33))
    expected = vectors(opened(tmp_path), prompts)
    edit_config(tmp_path, architectures=["Qwen3ForCausalLM"])
    core = opened(tmp_path)
    assert core.info.tasks == ("embed", "score")
    assert all(map(np.array_equal, vectors(core, prompts), expected))


def test_a_bare_model_whose_embedding_is_its_output_matrix_generates(tmp_path: Path) -> None:
    save_bare("qwen3", tmp_path / "bare", tie_word_embeddings=True)
    make("qwen3", TYPICAL["qwen3"], tmp_path / "whole", tie_word_embeddings=True)
    core = opened(tmp_path / "bare")
    assert core.info.tasks == ("generate", "embed", "score")
    assert generate(core) == generate(opened(tmp_path / "whole"))


def test_a_bare_spelling_with_an_output_matrix_generates(tmp_path: Path) -> None:
    make("llama", TYPICAL["llama"], tmp_path)
    expected = generate(opened(tmp_path))
    file = tmp_path / "model.safetensors"
    save_file({name.removeprefix("model."): tensor for name, tensor in load_file(file).items()}, file)
    assert generate(opened(tmp_path)) == expected


def test_a_model_without_an_output_matrix_does_not_generate_and_says_why(tmp_path: Path) -> None:
    save_bare("mistral", tmp_path, tie_word_embeddings=False)
    core = opened(tmp_path)
    with pytest.raises(InvalidRequestError, match="does not generate: it has no output matrix"):
        core.submit(Request(id="text", prompt=[5], params=SamplingParams(max_tokens=1)))
    assert not core.has_work


@pytest.mark.parametrize(("last", "pooling"), [(False, "auto"), (True, "none")])
def test_a_model_that_can_neither_generate_nor_is_told_how_to_pool_is_refused(
    last: bool, pooling: str, tmp_path: Path
) -> None:
    save_bare("mistral", tmp_path, last=last, tie_word_embeddings=False)
    with pytest.raises(ModelError, match=r"has no output matrix.*give --pooling last or mean"):
        opened(tmp_path, pooling)
    assert opened(tmp_path, "mean").info.tasks == ("embed", "score")


def test_what_a_bare_model_lacks_is_named_as_it_would_be_stored(tmp_path: Path) -> None:
    save_bare("qwen3", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["layers.1.self_attn.q_norm.weight"]
    save_file(tensors, file)
    with pytest.raises(ModelError, match=r"It lacks 'layers\.1\.self_attn\.q_norm\.weight'\."):
        opened(tmp_path)


def test_doctor_says_that_it_gives_embeddings(tmp_path: Path) -> None:
    save_bare("qwen3", tmp_path, tie_word_embeddings=False)
    assert doctors_opinion(str(tmp_path))["task"] == "embed"
    edit_config(tmp_path, tie_word_embeddings=True)
    assert doctors_opinion(str(tmp_path))["task"] == "generate"


def test_attention_both_ways_is_refused(tmp_path: Path) -> None:
    """The vectors would be others."""
    save_bare("qwen2", tmp_path)
    edit_config(tmp_path, is_causal=False)
    with pytest.raises(ModelError, match="attention both ways"):
        opened(tmp_path)
